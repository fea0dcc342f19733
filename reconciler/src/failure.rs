//! What goes wrong where servers and pods are made and removed: the controllers of Servers and of both kinds of groups.

use spawnery_api::inputs::InputsError;
use spawnery_runtime::client::CallError;
use spawnery_runtime::controller::ReconcileError;

use crate::bootstrap::BootstrapError;
use crate::render::RenderError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server.
    #[error("could not {what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: CallError,
    },
    /// The namespace is not ready for pods.
    #[error("could not prepare the namespace")]
    Bootstrap(#[source] BootstrapError),
    /// A pod cannot be made from its group's spec.
    #[error("could not render a pod")]
    Render(#[source] RenderError),
    /// Neither can what it is made from.
    #[error("could not read what pods are made from")]
    Inputs(#[source] InputsError),
}

impl Failure {
    /// A call that did not succeed; `what` was tried.
    pub(crate) fn call(what: &'static str) -> impl FnOnce(CallError) -> Self {
        move |source| Self::Call { what, source }
    }
}

/// What the API server says, in its own words, where it answered.
pub(crate) fn said(error: &CallError) -> String {
    match error {
        CallError::Api(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
        error => error.to_string(),
    }
}

impl ReconcileError for Failure {
    fn label(&self) -> &'static str {
        match self {
            Self::Call { source, .. } => source.label(),
            Self::Bootstrap(error) => error.label(),
            Self::Render(_) => "render",
            Self::Inputs(_) => "inputs",
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Call { source, .. } => source.retryable(),
            Self::Bootstrap(error) => error.retryable(),
            // Asks nothing of the API server, and whatever sets it right wakes us.
            Self::Render(_) | Self::Inputs(_) => true,
        }
    }
}
