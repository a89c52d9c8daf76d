//! Work under a lock: the one rule for what becomes of it when the lock is lost.

use crate::Error;
use crate::guard::Guard;

/// Runs work under a lock and frees it. If the lock is lost, the work is dropped where it stands.
pub(crate) async fn run_locked<T, E: From<Error>>(
    guard: Guard,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let outcome = {
        let work = std::pin::pin!(work);
        tokio::select! {
            biased;
            reason = guard.lost() => Err(guard.lost_error(reason)),
            done = work => Ok(done),
        }
    };
    // Work that blocked its thread may have finished late: then its success is not to be believed.
    let lost_meanwhile = guard.over().map(|reason| guard.lost_error(reason));
    guard.release().await;
    match outcome {
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => lost_meanwhile.map_or(Ok(value), |lost| Err(lost.into())),
        Err(lost) => Err(lost.into()),
    }
}
