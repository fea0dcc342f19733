//! A place where a test can hold up what passes.

use tokio::sync::watch;

/// Open at first. Whoever comes to a shut gate waits until it is opened.
#[derive(Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: watch::Sender::new(true) }
    }
}

impl Gate {
    /// Whoever comes from now on waits.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Lets everybody through again.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Returns when the gate is open.
    pub async fn pass(&self) {
        // The sender lives as long as this gate, so waiting cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn holds_up_while_shut() {
        let gate = Gate::default();
        assert!(gate.pass().now_or_never().is_some());
        gate.shut();
        let mut waiting = std::pin::pin!(gate.pass());
        assert!(waiting.as_mut().now_or_never().is_none());
        gate.open();
        waiting.await;
    }
}
