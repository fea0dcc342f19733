//! Judging callers by the API server.
//!
//! ```text
//! token ─► reviewed lately, or under review? ─► TokenReview (audience, account, pod) ─► pod: cache, else live ─► accepted
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use spawnery_api::names::{label, object, volume};
use spawnery_core::door::Introduction;
use spawnery_core::ledger::{PodUid, Role};
use spawnery_runtime::client::{CALL, deadline};
use spawnery_runtime::clock::Clock;
use tokio::sync::Semaphore;

use super::cache::{Cache, Key};
use super::limiter::Limiter;
use super::{Accepted, Authenticate, Refusal};
use crate::channel::metrics::ChannelMetrics;

/// How long an accepted review is believed.
const ACCEPTED_FOR: Duration = Duration::from_mins(1);
/// How long a refused review is believed.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most reviews remembered.
const REVIEWS: usize = 1024;
/// Most peers whose refused reviews are remembered.
const PEERS: usize = 4096;
/// Most requests at the API server at a time, so that a thousand agents that come back together do not starve the rest.
const AT_ONCE: usize = 32;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// What is known of a pod by its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// UID of the pod.
    pub uid: PodUid,
    /// Its group.
    pub group: String,
    /// Its role.
    pub role: Role,
    /// Whether it is one of ours.
    pub managed: bool,
}

/// Whom a token was issued to, as the API server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) namespace: String,
    pub(super) account: String,
    pub(super) pod: String,
    pub(super) uid: PodUid,
}

type Review = Result<Holder, Refusal>;
type Known = dyn Fn(&str, &str) -> Option<PodIdentity> + Send + Sync;

struct Reviews {
    made: Cache<Review>,
    running: HashMap<Key, Shared<BoxFuture<'static, Review>>>,
    limiter: Limiter,
}

/// Asks the API server, and remembers what it said.
pub struct KubeAuthenticator {
    client: kube::Client,
    known: Box<Known>,
    clock: Clock,
    reviews: Arc<Mutex<Reviews>>,
    room: Arc<Semaphore>,
    metrics: ChannelMetrics,
}

impl KubeAuthenticator {
    /// `known` looks a pod up in our cache by namespace and name; a pod that it does not know, or knows under another
    /// UID, is looked up live: agents are faster than watches.
    ///
    /// Needs the rights to create token reviews and to get pods.
    pub fn new(
        client: kube::Client,
        known: impl Fn(&str, &str) -> Option<PodIdentity> + Send + Sync + 'static,
        metrics: ChannelMetrics,
    ) -> Self {
        let reviews = Reviews { made: Cache::new(REVIEWS), running: HashMap::new(), limiter: Limiter::new(PEERS) };
        Self {
            client,
            known: Box::new(known),
            clock: Clock::system(),
            reviews: Arc::new(Mutex::new(reviews)),
            room: Arc::new(Semaphore::new(AT_ONCE)),
            metrics,
        }
    }

    async fn judge(&self, token: &str, role: Role, peer: IpAddr) -> Result<Accepted, Refusal> {
        if token.is_empty() {
            return Err(Refusal::NoToken);
        }
        let holder = self.review(token, peer).await?;
        if holder.account != account(role) {
            return Err(Refusal::WrongAccount);
        }
        let pod = self.pod(&holder, peer).await?;
        if !pod.managed || pod.role != role {
            return Err(Refusal::NotOurPod);
        }
        Ok(Accepted {
            namespace: holder.namespace,
            who: Introduction { uid: holder.uid, name: holder.pod, group: pod.group, role },
        })
    }

    /// Whom the token was issued to: by an earlier review, by one that runs already, or by a new one.
    async fn review(&self, token: &str, peer: IpAddr) -> Review {
        let key: Key = Sha256::digest(token.as_bytes()).into();
        let (review, ours) = {
            let now = self.clock.now();
            let mut reviews = self.reviews.lock();
            if let Some(made) = reviews.made.get(&key, now) {
                self.metrics.cache_hit();
                return made;
            }
            if let Some(running) = reviews.running.get(&key) {
                self.metrics.cache_hit();
                (running.clone(), false)
            } else {
                if !reviews.limiter.allows(peer, now) {
                    self.metrics.limited();
                    return Err(Refusal::RateLimited);
                }
                self.metrics.cache_missed();
                let running = self.start(key, token.to_owned());
                reviews.running.insert(key, running.clone());
                (running, true)
            }
        };
        let review = review.await;
        if ours && matches!(review, Err(refusal) if refusal.is_failure()) {
            self.charge(peer);
        }
        review
    }

    /// Runs to its end whoever still waits for it; what it learned is remembered, an outage is not.
    fn start(&self, key: Key, token: String) -> Shared<BoxFuture<'static, Review>> {
        let api = Api::<TokenReview>::all(self.client.clone());
        let (reviews, room, clock) = (Arc::clone(&self.reviews), Arc::clone(&self.room), self.clock);
        let task = tokio::spawn(async move {
            let review = ask(&api, &room, token).await;
            let now = clock.now();
            let mut reviews = reviews.lock();
            reviews.running.remove(&key);
            let keep = match &review {
                Ok(_) => Some(ACCEPTED_FOR),
                Err(refusal) if refusal.is_failure() => Some(REFUSED_FOR),
                Err(_) => None,
            };
            if let Some(until) = keep.and_then(|keep| now.checked_add(keep)) {
                reviews.made.put(key, review.clone(), until, now);
            }
            review
        });
        task.map(|joined| joined.unwrap_or(Err(Refusal::Unavailable))).boxed().shared()
    }

    async fn pod(&self, holder: &Holder, peer: IpAddr) -> Result<PodIdentity, Refusal> {
        let cached = (self.known)(&holder.namespace, &holder.pod);
        if let Some(pod) = cached.filter(|pod| pod.uid == holder.uid) {
            return Ok(pod);
        }
        let _permit = self.room.acquire().await.map_err(|_| Refusal::Unavailable)?;
        let pods = Api::<PartialObjectMeta<Pod>>::namespaced(self.client.clone(), &holder.namespace);
        let live = deadline(CALL, pods.get_opt(&holder.pod)).await;
        let live = live.map_err(|_| Refusal::Unavailable)?;
        let pod = match live {
            Some(pod) => identity(&pod).filter(|pod| pod.uid == holder.uid),
            None => None,
        };
        if pod.is_none() {
            self.charge(peer);
        }
        pod.ok_or(Refusal::NoSuchPod)
    }

    fn charge(&self, peer: IpAddr) {
        self.reviews.lock().limiter.charge(peer, self.clock.now());
    }
}

impl Authenticate for KubeAuthenticator {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        role: Role,
        peer: IpAddr,
    ) -> BoxFuture<'a, Result<Accepted, Refusal>> {
        self.judge(token, role, peer).boxed()
    }
}

async fn ask(api: &Api<TokenReview>, room: &Semaphore, token: String) -> Review {
    let review = TokenReview {
        spec: TokenReviewSpec { audiences: Some(vec![volume::TOKEN_AUDIENCE.to_owned()]), token: Some(token) },
        ..TokenReview::default()
    };
    let _permit = room.acquire().await.map_err(|_| Refusal::Unavailable)?;
    match deadline(CALL, api.create(&PostParams::default(), &review)).await {
        Ok(review) => holder(review.status.unwrap_or_default()),
        Err(error) => {
            tracing::warn!(%error, "could not review a token");
            Err(Refusal::Unavailable)
        }
    }
}

/// What a review says.
pub(super) fn holder(status: TokenReviewStatus) -> Review {
    let audience = status.audiences.unwrap_or_default();
    if status.authenticated != Some(true) || !audience.iter().any(|named| named == volume::TOKEN_AUDIENCE) {
        return Err(Refusal::TokenNotAccepted);
    }
    let user = status.user.unwrap_or_default();
    let username = user.username.unwrap_or_default();
    let account = username.strip_prefix("system:serviceaccount:");
    let Some((namespace, account)) = account.and_then(|account| account.split_once(':')) else {
        return Err(Refusal::WrongAccount);
    };
    let extra = user.extra.unwrap_or_default();
    let only = |key: &str| match extra.get(key).map(Vec::as_slice) {
        Some([value]) if !value.is_empty() => Some(value.as_str()),
        _ => None,
    };
    let (Some(pod), Some(uid)) = (only(POD_NAME), only(POD_UID)) else {
        return Err(Refusal::NotBound);
    };
    Ok(Holder { namespace: namespace.to_owned(), account: account.to_owned(), pod: pod.to_owned(), uid: uid.into() })
}

fn identity(pod: &PartialObjectMeta<Pod>) -> Option<PodIdentity> {
    let labels = pod.metadata.labels.as_ref()?;
    let role = match labels.get(label::ROLE)?.as_str() {
        role if role == Role::Server.as_str() => Role::Server,
        role if role == Role::Proxy.as_str() => Role::Proxy,
        _ => return None,
    };
    Some(PodIdentity {
        uid: pod.metadata.uid.as_deref()?.into(),
        group: labels.get(label::GROUP).cloned().unwrap_or_default(),
        role,
        managed: labels.get(label::MANAGED_BY).is_some_and(|by| by == label::MANAGED_BY_VALUE),
    })
}

fn account(role: Role) -> &'static str {
    match role {
        Role::Server => object::SERVER_SERVICE_ACCOUNT,
        Role::Proxy => object::PROXY_SERVICE_ACCOUNT,
    }
}
