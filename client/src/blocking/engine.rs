//! The runtime behind the facade, and the one way to wait for it.

use crate::settings::Settings;
use crate::{Error, observe};
use std::future::Future;
use std::sync::mpsc;
use tokio::runtime::{Builder, Handle, Runtime};

/// A manager with a runtime of its own. It lives for as long as a blocking manager or a guard does.
pub(super) struct Engine {
    pub(super) locks: crate::LockManager,
    /// Taken by whoever stops it.
    runtime: Option<Runtime>,
}

impl Engine {
    /// Starts a runtime for locks with these settings.
    ///
    /// Only the settings are shared with `like`, not its connections: they are served by a task on the
    /// runtime where they were first used, and a caller that blocks that runtime would wait for itself.
    pub(super) fn start(like: &crate::LockManager) -> Result<Self, Error> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("redlock-client").enable_all();
        let runtime = builder
            .build()
            .map_err(|error| Error::Config(format!("no thread for the locks: {error}").into()))?;
        let locks = crate::LockManager::new(Settings::clone(&like.shared().settings));
        Ok(Self { locks, runtime: Some(runtime) })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.locks.shared().settings
    }

    /// Lets the runtime do something and waits for the outcome.
    ///
    /// The caller's thread only ever waits for a channel. To drive the future itself it would have to enter
    /// the runtime, which is not allowed on a thread that is inside another one.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().ok_or(Error::NoRuntime)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let future = observe::as_its_caller(future);
        runtime.spawn(async move {
            // Nobody leaves before the answer is there.
            let _ = answer.send(future.await);
        });
        answered.recv().map_err(|_| Error::NoRuntime)
    }

    /// Runs something short on this thread that wants to start tasks on the runtime.
    pub(super) fn inside<T>(&self, run: impl FnOnce() -> T) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().ok_or(Error::NoRuntime)?;
        // A thread that is ending has already forgotten how to be inside one.
        if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            return Err(Error::NoRuntime);
        }
        let _inside = runtime.enter();
        Ok(run())
    }

    /// Waits until nothing is left to be freed, but no longer than a node may take to answer.
    pub(super) fn flush(&self) {
        let _ = self.wait(flushed(self.locks.clone()));
    }
}

async fn flushed(locks: crate::LockManager) {
    let patience = locks.shared().settings.node_timeout;
    let _ = tokio::time::timeout(patience, locks.flush()).await;
}

impl Drop for Engine {
    /// The runtime itself does what is left to do and then stops itself: whoever drops the last guard does
    /// not wait for it, and may be inside another runtime, where one cannot be dropped.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let locks = self.locks.clone();
            let handle = runtime.handle().clone();
            handle.spawn(async move {
                flushed(locks).await;
                runtime.shutdown_background();
            });
        }
    }
}
