//! Clients of the API server, and the deadline that every call has.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::ClientArgs;

/// Limit of one ordinary call: the API server answers in milliseconds, and a reconcile must not hang on one that is gone.
pub const CALL: Duration = Duration::from_secs(5);

/// Limit of one page of a list: the first list after a start may be large.
pub const LIST: Duration = Duration::from_secs(30);

/// The two clients of a process.
#[derive(Clone)]
pub struct Clients {
    /// Retries 429, 503 and 504 by itself; callers bound it with [`deadline`].
    pub api: Client,
    /// Never retries: for leases, seals and evictions, where the answer itself is what we want to know.
    pub strict: Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The named file cannot be used.
    #[error("could not use the kubeconfig {path}")]
    Kubeconfig {
        /// As given.
        path: PathBuf,
        /// What was wrong with it.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// None of the usual places holds a configuration.
    #[error("could not find out how to reach the API server; give --kubeconfig or run in a pod")]
    Infer(#[source] kube::config::InferConfigError),
    /// The configuration makes no client.
    #[error("could not build a client of the API server")]
    Build(#[source] kube::Error),
}

/// Builds the clients; contacts nobody yet.
///
/// # Errors
/// Where no usable configuration is found.
pub async fn connect(args: &ClientArgs) -> Result<Clients, ConnectError> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let refuse = |source| ConnectError::Kubeconfig { path: path.clone(), source };
            let file = Kubeconfig::read_from(path).map_err(refuse)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(refuse)?
        }
        None => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    config.connect_timeout = Some(CALL);
    let mut strict = config.clone();
    strict.default_retry = false;
    Ok(Clients {
        api: Client::try_from(config).map_err(ConnectError::Build)?,
        strict: Client::try_from(strict).map_err(ConnectError::Build)?,
    })
}

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Not sent: this process does not lead any more, and is about to end.
    #[error("not sent: this process no longer leads")]
    NotLeading,
    /// No answer in time; the call may still take effect.
    #[error("no answer from the API server within {after:?}")]
    Timeout {
        /// The limit that passed.
        after: Duration,
    },
}

impl CallError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            Self::Api(_) | Self::NotLeading | Self::Timeout { .. } => None,
        }
    }

    fn reason_is(&self, reason: &str) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.reason == reason)
    }

    /// The object, or the namespace, is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Somebody wrote in between, a precondition did not hold, or a field belongs to somebody else.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && !self.is_already_exists()
    }

    /// A create met an object of that name.
    pub fn is_already_exists(&self) -> bool {
        self.reason_is("AlreadyExists")
    }

    /// We lack the right, or admission refused.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The object as sent can never be accepted.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// The same call may succeed later without anybody changing anything.
    pub fn retryable(&self) -> bool {
        match self.code() {
            Some(code) => matches!(code, 409 | 429 | 500..=599),
            None => true,
        }
    }

    /// Short constant name for metrics.
    pub fn label(&self) -> &'static str {
        match (self, self.code()) {
            (Self::Timeout { .. }, _) => "timeout",
            (Self::NotLeading, _) => "not_leading",
            (_, Some(404)) => "not_found",
            (_, Some(409)) => "conflict",
            (_, Some(403)) => "forbidden",
            (_, Some(422)) => "invalid",
            (_, Some(429)) => "throttled",
            (_, Some(500..=599)) => "server",
            (_, Some(_)) => "refused",
            (_, None) => "unreachable",
        }
    }
}

/// Carries out one call with a limit.
///
/// # Errors
/// [`CallError::Timeout`] when the limit passes first; otherwise what the call says.
pub async fn deadline<T>(limit: Duration, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(CallError::Api),
        Err(_) => Err(CallError::Timeout { after: limit }),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn answered(code: u16, reason: &str) -> CallError {
        let status = kube::core::Status { code, reason: reason.to_owned(), ..kube::core::Status::default() };
        CallError::Api(kube::Error::Api(status.boxed()))
    }

    #[rstest]
    #[case::not_found(404, "NotFound", "not_found", false)]
    #[case::conflict(409, "Conflict", "conflict", true)]
    #[case::forbidden(403, "Forbidden", "forbidden", false)]
    #[case::invalid(422, "Invalid", "invalid", false)]
    #[case::throttled(429, "TooManyRequests", "throttled", true)]
    #[case::broken(503, "", "server", true)]
    fn tells_answers_apart(#[case] code: u16, #[case] reason: &str, #[case] label: &str, #[case] retryable: bool) {
        let error = answered(code, reason);
        assert_eq!((error.label(), error.retryable()), (label, retryable));
    }

    #[test]
    fn an_existing_object_is_not_a_lost_race() {
        let error = answered(409, "AlreadyExists");
        assert!(error.is_already_exists() && !error.is_conflict());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up() {
        let error = deadline(CALL, std::future::pending::<Result<(), kube::Error>>()).await.unwrap_err();
        assert_eq!(error.label(), "timeout");
    }
}
