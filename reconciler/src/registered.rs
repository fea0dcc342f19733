//! Ready only once the webhook is registered: what users apply before that passes without a review.
//!
//! `helm install --wait` returns when every replica is ready, and the first `kubectl apply` follows it. So a replica of a
//! fresh installation is not ready before there is a registration, whoever wrote it. On a cluster that has one this costs
//! a single request; and where no webhook answers, agents must reach the leader all the same, so patience ends.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, Client};
use spawnery_api::names::object;
use spawnery_runtime::readiness::ReadyFlag;

/// How long a replica waits for a registration before it is ready without one.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Sets `flag` once there is a registration, or when patience ends; then it is done.
pub(crate) async fn wait(client: Client, flag: ReadyFlag) {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let exists = || async { matches!(api.get_metadata_opt(object::WEBHOOK_CONFIGURATION).await, Ok(Some(_))) };
    if tokio::time::timeout(PATIENCE, until(exists)).await.is_err() {
        tracing::warn!(waited = ?PATIENCE, "no webhook is registered; ready without it");
    }
    flag.set(true);
}

async fn until<F: Future<Output = bool>>(exists: impl Fn() -> F) {
    while !exists().await {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::Instant;

    /// An API server that knows of the registration from its third answer on, or never.
    fn server(ever: bool) -> Client {
        let asked = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn(move |_: Request<Body>| {
            let nth = asked.fetch_add(1, Ordering::Relaxed);
            let (status, body) = if ever && nth >= 2 {
                (
                    200,
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "spawnery"}}),
                )
            } else {
                let nothing =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
                (404, nothing)
            };
            let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(response)
        });
        Client::new(service, "default")
    }

    #[rstest]
    #[case::from_the_third_look_on(true, 2 * LOOK)]
    #[case::never(false, PATIENCE)]
    #[tokio::test(start_paused = true)]
    async fn is_ready(#[case] ever: bool, #[case] after: Duration) {
        let (flag, begin) = (ReadyFlag::default(), Instant::now());
        assert!(!flag.holds());
        wait(server(ever), flag.clone()).await;
        assert!(flag.holds());
        assert_eq!(begin.elapsed().as_millis() / 100, after.as_millis() / 100);
    }
}
