//! Work under a lock: the one rule for what becomes of it when the lock is lost.

use crate::guard::Guard;
use crate::{Error, Loss};

/// A guard of some kind.
pub(crate) trait Holds {
    fn is_valid(&self) -> bool;
    async fn lost(&self) -> Loss;
    fn lost_error(&self, loss: Loss) -> Error;
    async fn free(self);
}

impl Holds for Guard {
    fn is_valid(&self) -> bool {
        Self::is_valid(self)
    }

    async fn lost(&self) -> Loss {
        Self::lost(self).await
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Self::lost_error(self, loss)
    }

    async fn free(self) {
        self.release().await;
    }
}

/// Runs work under a lock and frees it. If the lock is lost, the work is dropped where it stands.
pub(crate) async fn work_under<T, E: From<Error>>(
    guard: impl Holds,
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
    let lost_meanwhile = (!guard.is_valid()).then(|| guard.lost_error(Loss::Expired));
    guard.free().await;
    match outcome {
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => lost_meanwhile.map_or(Ok(value), |lost| Err(lost.into())),
        Err(lost) => Err(lost.into()),
    }
}
