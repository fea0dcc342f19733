//! Scheduler extender: packs servers by people, spreads proxies, keeps both off departing nodes.
//!
//! ```text
//!                       ┌─ /filter      core::placement::admit for each node → names that may have the pod
//! kube-scheduler ─HTTPS─┤
//!                       └─ /prioritize  core::placement::score for each node → 0 to 10
//!
//! watches: nodes, our pods, Servers, own certificate ──► Index
//! ```
//! Every replica answers. A call reads the index, never the API server. A scheduler does not say when it has thought again,
//! so nothing is reserved; an answer that hangs on where the last pod went waits until the watch shows that. Where we know
//! nothing (not our pod, a node that the watch has not shown, a watch gone silent) the answer leaves everything to the
//! scheduler.

mod answers;
pub mod args;
mod flights;
mod index;
mod metrics;
mod patience;
mod serve;
mod stores;
mod wire;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use spawnery_api::names::object;
use spawnery_certs::extender_server_config;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::frame::{Frame, Front};
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::serve::certificate::Owner;
use spawnery_runtime::serve::room::Room;
use spawnery_runtime::shutdown::Supervisor;

pub use serve::router;

/// Calls worked on at once. A scheduler makes two, one after the other.
const IN_FLIGHT: usize = 64;

/// What the handlers work with, built once.
#[derive(Debug)]
pub struct App {
    clock: Clock,
    stores: stores::Stores,
    index: stores::Shared,
    flights: Arc<flights::Flights>,
    patience: patience::Patience,
    room: Room,
    metrics: metrics::Metrics,
}

/// The tasks behind an [`App`].
#[derive(Debug)]
pub struct Tasks(stores::Tasks);

impl App {
    /// Builds the handlers' context over a client.
    pub fn new(
        client: &kube::Client,
        args: &args::Args,
        readiness: &Readiness,
        registry: &mut Registry,
        clock: Clock,
    ) -> (Arc<Self>, Tasks) {
        let index = Arc::new(RwLock::new(index::Index::new(args.drain_taint.clone(), args.default_budget())));
        let flights = Arc::new(flights::Flights::default());
        let patience = patience::Patience::default();
        let (stores, tasks) = stores::Stores::new(client, args.scope.only(), &index, &flights, &patience, clock);
        stores.watch_readiness(readiness, clock);
        let metrics = metrics::Metrics::new(registry);
        let room = Room::new(IN_FLIGHT);
        (Arc::new(Self { clock, stores, index, flights, patience, room, metrics }), Tasks(tasks))
    }
}

impl Tasks {
    /// Spawns the tasks; they end with the process.
    pub fn spawn(self, supervisor: &Supervisor) {
        self.0.spawn(supervisor);
    }
}

/// Runs the extender until it is asked to end.
///
/// # Errors
/// When it cannot start, or a task that must not end has ended.
pub async fn run(args: args::Args) -> anyhow::Result<()> {
    let mut frame = Frame::start(&args.client, args.shutdown).await?;
    let (app, tasks) = App::new(&frame.clients.api, &args, &frame.readiness, &mut frame.registry, frame.clock);
    tasks.spawn(&frame.supervisor);
    let front = Front {
        address: args.extender_bind_address,
        owner: Owner {
            namespace: &args.scope.operator_namespace,
            secret: object::EXTENDER_TLS_SECRET,
            service: object::EXTENDER,
        },
        tokens: None,
        tls: extender_server_config,
        certificate_ends: app.metrics.certificate_ends(),
        router: router(app),
        body_bytes: wire::MAX_BODY_BYTES,
    };
    frame.serve(&args.admin, front).await
}
