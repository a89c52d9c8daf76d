//! Measures how much memory a call allocates.

// Implementing an allocator needs unsafe code; this one counts and forwards to the system's.
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
    // A thread that ends has no counter any more, and nothing to measure.
    let _ = REQUESTED.try_with(|requested| requested.set(requested.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to the system's allocator unchanged, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is the same here.
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

/// The result of a call, and how many bytes it allocated, freed ones included.
pub(crate) fn measured<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTED.get();
    let outcome = call();
    (outcome, REQUESTED.get().wrapping_sub(before))
}
