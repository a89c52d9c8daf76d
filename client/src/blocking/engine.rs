//! The runtime behind the blocking API, and how a thread waits for it.

use crate::settings::Settings;
use crate::{Error, observe};
use std::future::Future;
use std::sync::mpsc;
use tokio::runtime::{Builder, Handle, Runtime};

/// An async manager with its own runtime. It lives as long as a blocking manager or a guard uses it.
pub(super) struct Engine {
    pub(super) locks: crate::LockManager,
    /// `None` once the drop has taken the runtime.
    runtime: Option<Runtime>,
}

impl Engine {
    /// Starts a runtime for locks with the settings of `like`.
    ///
    /// The engine does not share the connections of `like`. A task on the runtime of `like` serves those, and
    /// a caller that blocks that runtime would wait for itself.
    pub(super) fn start(like: &crate::LockManager) -> Result<Self, Error> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("redlock-client").enable_all();
        let runtime = builder.build().map_err(|error| {
            Error::Config(format!("cannot start the thread of the lock manager: {error}").into())
        })?;
        let locks = crate::LockManager::new(Settings::clone(&like.shared().settings));
        Ok(Self { locks, runtime: Some(runtime) })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.locks.shared().settings
    }

    /// Runs a future on the runtime and waits for its output.
    ///
    /// The caller's thread only waits on a channel. To run the future, the thread would have to enter the
    /// runtime, and tokio forbids that on a thread that is inside another runtime.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().ok_or(Error::NoRuntime)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let future = observe::as_its_caller(future);
        runtime.spawn(async move {
            // The caller waits until it has the answer.
            let _ = answer.send(future.await);
        });
        answered.recv().map_err(|_| Error::NoRuntime)
    }

    /// Runs a short function on this thread, inside the runtime, so that the function can spawn tasks.
    pub(super) fn inside<T>(&self, run: impl FnOnce() -> T) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().ok_or(Error::NoRuntime)?;
        // A thread that exits has already destroyed its thread-local context of tokio.
        if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            return Err(Error::NoRuntime);
        }
        let _inside = runtime.enter();
        Ok(run())
    }

    /// Waits until every release is answered or has timed out, at most for the node timeout.
    pub(super) fn flush(&self) {
        let _ = self.wait(flushed(self.locks.clone()));
    }
}

async fn flushed(locks: crate::LockManager) {
    let patience = locks.shared().settings.node_timeout;
    let _ = tokio::time::timeout(patience, locks.flush()).await;
}

impl Drop for Engine {
    /// Waits for the releases, at most for the node timeout, because the program may end now. The runtime then
    /// stops itself: this thread may be inside another runtime, where tokio forbids to drop a runtime.
    fn drop(&mut self) {
        self.flush();
        if let Some(runtime) = self.runtime.take() {
            let handle = runtime.handle().clone();
            handle.spawn(async move { runtime.shutdown_background() });
        }
    }
}
