//! Work under a lock: the one rule for what becomes of it when the lock is lost.

use crate::Error;
use crate::guard::Guard;

/// Runs work under a lock and frees it. If the lock is lost, the work is dropped where it stands.
pub(crate) async fn work_under<T, E: From<Error>>(
    guard: Guard,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let outcome = {
        let work = std::pin::pin!(work);
        tokio::select! {
            biased;
            loss = guard.lost() => Err(guard.lost_error(loss)),
            done = work => Ok(done),
        }
    };
    // Work that blocked its thread may have finished late: then its success is not to be believed.
    let lost_meanwhile = guard.over().map(|loss| guard.lost_error(loss));
    guard.release().await;
    match outcome {
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => lost_meanwhile.map_or(Ok(value), |lost| Err(lost.into())),
        Err(lost) => Err(lost.into()),
    }
}
