//! The control plane's own scheduler, configured as an administrator would.

use super::{Cluster, component::Component};
use anyhow::{Context as _, Result};
use serde_json::Value;

impl Cluster {
    /// Lays these fields over the scheduler's configuration and starts it anew.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn configure_scheduler(&self, more: &Value) -> Result<()> {
        let path = self.inner.layout.file("scheduler.json");
        let text = std::fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
        let mut config: Value = serde_json::from_slice(&text).context("the scheduler's configuration is no JSON")?;
        let fields = config.as_object_mut().context("the scheduler's configuration is no object")?;
        fields.extend(more.as_object().context("not an object")?.clone());
        std::fs::write(&path, config.to_string()).with_context(|| format!("could not write {}", path.display()))?;
        self.restart(Component::Scheduler).await
    }
}
