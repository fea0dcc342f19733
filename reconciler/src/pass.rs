//! One look at an object: plan, carry out, and plan again on what that changed, until nothing is left to do now.

use std::time::Duration;

use kube::runtime::controller::Action;

use crate::failure::Failure;

/// How soon to look again at what another part is about to change.
pub(crate) const SHORTLY: Duration = Duration::from_millis(100);

/// Steps taken in one look; each ends with a write that the next one builds on.
const STEPS: usize = 8;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Something was written that the rest builds on: plan again at once.
    Again,
    /// Nothing is left to do now; look again after so long, if nothing else happens.
    Until(Option<Duration>),
}

/// Takes steps until one leaves nothing to do. After a conflict somebody wrote in between: what they wrote is on its way to
/// our cache and wakes us, so `forget` drops what we hold to be newer.
pub(crate) async fn settle<F>(mut step: impl FnMut() -> F, forget: impl FnOnce()) -> Result<Action, Failure>
where
    F: Future<Output = Result<Done, Failure>>,
{
    for _ in 0..STEPS {
        match step().await {
            Ok(Done::Again) => {}
            Ok(Done::Until(None)) => return Ok(Action::await_change()),
            Ok(Done::Until(Some(wait))) => return Ok(Action::requeue(wait)),
            Err(Failure::Call { source, .. }) if source.is_conflict() => {
                forget();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Action::requeue(SHORTLY))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rstest::rstest;
    use spawnery_runtime::client::CallError;

    use super::*;

    fn refused(code: u16) -> Failure {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        Failure::Call { what: "write", source: CallError::Api(kube::Error::Api(status.boxed())) }
    }

    const WAIT: Duration = Duration::from_secs(7);

    #[rstest]
    #[case::nothing_to_do(0, || Ok(Done::Until(None)), Some(Action::await_change()), false)]
    #[case::something_later(2, || Ok(Done::Until(Some(WAIT))), Some(Action::requeue(WAIT)), false)]
    #[case::without_an_end(usize::MAX, || Ok(Done::Again), Some(Action::requeue(SHORTLY)), false)]
    #[case::somebody_wrote_in_between(1, || Err(refused(409)), Some(Action::requeue(SHORTLY)), true)]
    #[case::refused(1, || Err(refused(403)), None, false)]
    #[tokio::test]
    async fn settles(
        #[case] again: usize,
        #[case] last: fn() -> Result<Done, Failure>,
        #[case] want: Option<Action>,
        #[case] forgets: bool,
    ) {
        let (taken, forgot) = (Cell::new(0), Cell::new(false));
        let step = || {
            let result = if taken.get() < again { Ok(Done::Again) } else { last() };
            taken.set(taken.get() + 1);
            std::future::ready(result)
        };
        let action = settle(step, || forgot.set(true)).await;
        assert_eq!((action.ok(), forgot.get()), (want, forgets));
        assert_eq!(taken.get(), again.saturating_add(1).min(STEPS));
    }
}
