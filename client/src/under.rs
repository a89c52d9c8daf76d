//! Work under a lock: the one rule for what becomes of it when the lock is lost.

use crate::guard::Guard;
use crate::{Error, Loss};

/// A guard of some kind.
pub(crate) trait Holds {
    /// Why it is no longer held, if it is not.
    fn over(&self) -> Option<Loss>;
    async fn lost(&self) -> Loss;
    fn lost_error(&self, loss: Loss) -> Error;
    async fn free(self);
}

impl Holds for Guard {
    fn over(&self) -> Option<Loss> {
        Self::over(self)
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
    let lost_meanwhile = guard.over().map(|loss| guard.lost_error(loss));
    guard.free().await;
    match outcome {
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => lost_meanwhile.map_or(Ok(value), |lost| Err(lost.into())),
        Err(lost) => Err(lost.into()),
    }
}
