//! Reads a request's body: within a time, up to a size.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::StatusCode;

/// For the whole body to arrive. API servers and schedulers send it at once.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unread {
    /// Longer than the limit.
    #[error("the body is too long")]
    TooLong,
    /// It did not arrive in time.
    #[error("the body did not arrive in time")]
    Slow,
    /// The connection broke off inside the body.
    #[error("the body broke off")]
    Broken,
}

impl Unread {
    /// What to answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }

    /// Short constant name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            Self::Slow => "slow",
            Self::Broken => "broken",
        }
    }
}

/// The whole body, of at most `limit` bytes.
///
/// # Errors
/// When it is longer, slower than 5 s, or breaks off.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, Unread> {
    match tokio::time::timeout(DEADLINE, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(Unread::TooLong),
        Ok(Err(_)) => Err(Unread::Broken),
        Err(_) => Err(Unread::Slow),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let begin = tokio::time::Instant::now();
        assert_eq!(read(never, 10).await, Err(Unread::Slow));
        assert_eq!(begin.elapsed(), DEADLINE);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_told_from_one_that_is_too_long() {
        let broken = futures::stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("reset"))]);
        assert_eq!(read(Body::from_stream(broken), 10).await, Err(Unread::Broken));
        assert_eq!(read(Body::from(vec![b' '; 11]), 10).await, Err(Unread::TooLong));
        assert_eq!(read(Body::from(vec![b' '; 10]), 10).await.map(|bytes| bytes.len()), Ok(10));
    }
}
