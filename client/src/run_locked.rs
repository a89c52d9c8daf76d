//! Runs work under a lock and stops it when the lock is lost.

use crate::Error;
use crate::guard::Guard;

/// Runs work under a lock, then releases the lock. If the lock is lost, drops the future of the work.
pub(crate) async fn run_locked<T, E: From<Error>>(
    guard: Guard,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let outcome = {
        let work = std::pin::pin!(work);
        tokio::select! {
            biased;
            reason = guard.lost() => Err(guard.handle.lost_error(reason)),
            done = work => Ok(done),
        }
    };
    // Work that blocked its thread may have finished after the lock ended: its success then does not count.
    let lost_meanwhile = guard.over().map(|reason| guard.handle.lost_error(reason));
    guard.release().await;
    match outcome {
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => lost_meanwhile.map_or(Ok(value), |lost| Err(lost.into())),
        Err(lost) => Err(lost.into()),
    }
}
