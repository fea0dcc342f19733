//! The proxy and its agent: directory in, occupancy out.

use super::Inner;
use crate::game::local_api::Directory;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// After an exchange that failed.
const RETRY: Duration = Duration::from_millis(100);
/// How long a proxy that lies goes on routing by the directory before the one that it has confirmed: longer than a close.
const LATE: Duration = Duration::from_millis(500);
/// Everything is told again after this long, so that an agent that was restarted learns it.
const REPEAT: Duration = Duration::from_secs(1);

/// Takes each directory that the agent has, and routes by it from then on.
pub(super) async fn follow(proxy: Arc<Inner>) {
    let mut seen = 0;
    loop {
        proxy.faults.control.pass().await;
        let answer = proxy.config.agent.directory(seen).await;
        // A directory that came while the gate was shut has not reached the proxy.
        proxy.faults.control.pass().await;
        match answer {
            Ok(Some(directory)) => {
                seen = directory.seq;
                if proxy.faults.lies.load(Ordering::Relaxed) {
                    // Beside this loop: what the agent asks meanwhile is answered.
                    tokio::spawn(adopt_late(Arc::clone(&proxy), directory));
                } else {
                    proxy.table.lock().adopt(&directory);
                    proxy.swapped.send_replace(());
                }
                proxy.report.send_replace(Some(seen));
            }
            Ok(None) => {}
            Err(error) => {
                // An agent that was restarted counts from the beginning again.
                tracing::debug!(name = proxy.config.name, error = %format!("{error:#}"), "could not get the directory");
                seen = 0;
                sleep(RETRY).await;
            }
        }
    }
}

async fn adopt_late(proxy: Arc<Inner>, directory: Directory) {
    sleep(LATE).await;
    proxy.table.lock().adopt(&directory);
    proxy.swapped.send_replace(());
}

/// Tells the agent what the proxy has: one report after another, so that none overtakes a newer one.
pub(super) async fn report(proxy: Arc<Inner>) {
    let mut wanted = proxy.report.subscribe();
    loop {
        proxy.faults.control.pass().await;
        let swap = *wanted.borrow_and_update();
        // Taken after the swap that is confirmed with it, so everybody routed before the swap is in it.
        let occupancy = proxy.table.lock().occupancy(proxy.config.serials.next());
        let agent = &proxy.config.agent;
        let reported = match swap {
            Some(seq) => agent.post_applied(seq, &occupancy).await,
            None => agent.put_occupancy(&occupancy).await,
        };
        let pause = match reported {
            Ok(()) => {
                // Unless a newer one came while this was sent.
                proxy.report.send_if_modified(|newest| {
                    *newest = newest.filter(|_| *newest != swap);
                    false
                });
                REPEAT
            }
            Err(error) => {
                tracing::debug!(name = proxy.config.name, error = %format!("{error:#}"), "could not report");
                RETRY
            }
        };
        // Whichever is first; both lead to a report.
        let _ = timeout(pause, wanted.changed()).await;
    }
}
