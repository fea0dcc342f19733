//! The two methods of the channel: proving who calls, and opening a session.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use spawnery_core::ledger::Role;
use spawnery_proto::AgentService;
use spawnery_proto::v1alpha1::{OperatorToProxy, OperatorToServer, ProxyMessage, ServerMessage};
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::ChannelConfig;
use super::auth::{Authenticate, Refusal};
use super::inbound::{self, Heard};
use super::listener::Connection;
use super::metrics::ChannelMetrics;
use super::outbound::{self, Outbound, Said};
use crate::hub::Hub;

const PREFIX: &str = "Bearer ";

/// What serves the sessions.
pub(super) struct Service {
    config: ChannelConfig,
    hub: Arc<Hub>,
    authenticator: Arc<dyn Authenticate>,
    metrics: ChannelMetrics,
    stop: CancellationToken,
}

impl Service {
    pub(super) fn new(
        config: ChannelConfig,
        hub: Arc<Hub>,
        authenticator: Arc<dyn Authenticate>,
        metrics: ChannelMetrics,
        stop: CancellationToken,
    ) -> Self {
        Self { config, hub, authenticator, metrics, stop }
    }

    async fn session<In, Out>(
        &self,
        role: Role,
        request: Request<Streaming<In>>,
    ) -> Result<Response<BoxStream<'static, Result<Out, Status>>>, Status>
    where
        In: Heard,
        Out: Said,
    {
        let connection = request.extensions().get::<Connection>().cloned();
        let connection = connection.ok_or_else(|| Status::internal("a request without a connection"))?;
        let in_use = connection.stream();
        let token = bearer(request.metadata()).unwrap_or_default();
        let accepted = self.authenticator.authenticate(token, role, connection.peer.ip()).await;
        let accepted = accepted.map_err(|refusal| self.refuse(role, &connection, refusal))?;
        let (namespace, pod) = (accepted.namespace, accepted.who.name.clone());
        let session = Arc::new(self.hub.open(&namespace, accepted.who));
        if !session.may_send() {
            return Err(Status::unavailable("not leading"));
        }
        tracing::debug!(namespace, name = pod, role = role.as_str(), peer = %connection.peer, "session opened");
        let ends = outbound::Ends::new(self.stop.clone());
        let inbound = request.into_inner();
        let (reader, metrics) = (Arc::clone(&session), self.metrics.clone());
        let reading = inbound::read(reader, inbound, ends.clone(), connection, in_use, self.config, metrics);
        tokio::spawn(reading);
        let outbound = Outbound::<Out>::new(session, ends, self.config);
        Ok(Response::new(outbound.into_stream().boxed()))
    }

    fn refuse(&self, role: Role, connection: &Connection, refusal: Refusal) -> Status {
        tracing::info!(
            peer = %connection.peer,
            role = role.as_str(),
            reason = refusal.reason(),
            "session refused"
        );
        if refusal.is_failure() {
            self.metrics.auth_failed(role);
        }
        refusal.status()
    }
}

#[tonic::async_trait]
impl AgentService for Service {
    type ProxySessionStream = BoxStream<'static, Result<OperatorToProxy, Status>>;
    type ServerSessionStream = BoxStream<'static, Result<OperatorToServer, Status>>;

    async fn proxy_session(
        &self,
        request: Request<Streaming<ProxyMessage>>,
    ) -> Result<Response<Self::ProxySessionStream>, Status> {
        self.session(Role::Proxy, request).await
    }

    async fn server_session(
        &self,
        request: Request<Streaming<ServerMessage>>,
    ) -> Result<Response<Self::ServerSessionStream>, Status> {
        self.session(Role::Server, request).await
    }
}

/// The token, if there is one in the one accepted form.
fn bearer(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("authorization")?.to_str().ok()?.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::token(Some("Bearer abc"), Some("abc"))]
    #[case::none(None, None)]
    #[case::other_case(Some("bearer abc"), None)]
    #[case::other_scheme(Some("Basic abc"), None)]
    #[case::no_space(Some("Bearerabc"), None)]
    #[case::empty(Some("Bearer "), Some(""))]
    fn one_form_is_accepted(#[case] header: Option<&str>, #[case] want: Option<&str>) {
        let mut metadata = MetadataMap::new();
        if let Some(header) = header {
            metadata.insert("authorization", header.parse().unwrap());
        }
        assert_eq!(bearer(&metadata), want);
    }
}
