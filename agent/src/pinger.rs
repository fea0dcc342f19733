//! Asks the game for its count again and again, and at once when the operator wants to know.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::shared::Shared;
use crate::slp;

/// Pings `host`:`port` every `interval`, and at once for a question; `asked_once` is cancelled when the first ping has ended,
/// with an answer or without. Never ends.
pub async fn run(shared: Arc<Shared>, host: String, port: u16, interval: Duration, asked_once: CancellationToken) {
    let mut reachable = None;
    loop {
        // Taken before the ping begins: only a count begun after the question answers it.
        let asked = shared.with(|state| state.question());
        let answer = slp::ping(&host, port).await;
        match &answer {
            Ok(_) if reachable != Some(true) => info!(host, port, "the game answers"),
            Err(error) if reachable != Some(false) => info!(host, port, %error, "the game's count is unknown"),
            Ok(_) | Err(_) => debug!(host, port, ok = answer.is_ok(), "pinged"),
        }
        reachable = Some(answer.is_ok());
        let open = shared.with(|state| {
            state.pinged(answer.ok(), asked);
            state.question()
        });
        asked_once.cancel();
        if open.is_some_and(|open| asked != Some(open)) {
            continue;
        }
        tokio::select! {
            () = shared.question() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}
