//! The async runtime of the contenders, which also runs between measurements.

use std::sync::mpsc;

use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime that continues between two measurements, as in a real program: the client reads late replies when they
/// arrive, and timers fire on time.
pub(crate) struct BenchRuntime {
    pub(crate) name: &'static str,
    handle: Handle,
    /// Keeps the worker threads of a multi-thread runtime alive.
    _workers: Option<Runtime>,
}

impl BenchRuntime {
    /// Tokio's usual runtime, with a worker for each of two cores.
    pub(crate) fn multi_thread() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        Self { name: "multi-thread, 2 workers", handle: runtime.handle().clone(), _workers: Some(runtime) }
    }

    /// Tokio's runtime on one thread.
    pub(crate) fn current_thread() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let handle = runtime.handle().clone();
        // Ends with the process.
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self { name: "current-thread", handle, _workers: None }
    }

    /// Runs a future as a task of the runtime and waits for it here, outside.
    pub(crate) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (done, outcome) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = done.send(future.await);
        });
        outcome.recv().expect("a task that does not panic")
    }
}
