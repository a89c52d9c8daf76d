//! How much memory a call asks for.

// An allocator is unsafe to write; this one only counts and passes everything on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that is going away has nothing left to measure.
    let _ = REQUESTED.try_with(|requested| requested.set(requested.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to the system's allocator unchanged, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// What a call returns, and how many bytes it has asked for, whether or not it has given them back.
pub(crate) fn measured<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTED.get();
    let outcome = call();
    (outcome, REQUESTED.get().wrapping_sub(before))
}
