//! Data that only the server's main thread uses.

use std::cell::{Cell, RefCell};

use super::context::Ctx;

thread_local! {
    /// Set once, on the thread that loads the module: the server's main thread.
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as the main one.
pub(crate) fn this_is_the_main_thread() {
    IS_MAIN.set(true);
}

/// Whether the calling thread is the main one.
fn on_main_thread() -> bool {
    IS_MAIN.get()
}

/// A cell that only the main thread can open, or a thread that holds the server's global lock.
pub(crate) struct Confined<T>(RefCell<Option<T>>);

// SAFETY: `with` gives access on one thread only, the one that loaded the module. `during` gives access only
// in a call with a context: the server makes such calls one at a time, under its global lock, which the main
// thread holds whenever it calls the module. A forked child inherits that thread and has its own copy of the
// data.
unsafe impl<T> Sync for Confined<T> {}

impl<T> Confined<T> {
    pub(crate) const fn empty() -> Self {
        Self(RefCell::new(None))
    }

    /// Fills the cell. False off the main thread or while the cell is open.
    pub(crate) fn fill(&self, value: T) -> bool {
        if !on_main_thread() {
            return false;
        }
        self.0.try_borrow_mut().map(|mut slot| *slot = Some(value)).is_ok()
    }

    /// Opens the cell. `None` off the main thread, before it is filled, and while it is open further
    /// up the stack: the server may call back into the module while the module calls the server.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        if on_main_thread() { self.open(run) } else { None }
    }

    /// Opens the cell in a call of the server; `None` as above. The context proves what `with` has to check:
    /// that no other thread is in the module.
    #[inline]
    pub(crate) fn during<R>(&self, _: Ctx<'_>, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.open(run)
    }

    #[inline]
    fn open<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok()?.as_mut().map(run)
    }
}
