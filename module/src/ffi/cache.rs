//! Prefetch hints for the processor's cache.

/// Prefetches a value that the caller reads soon. Does nothing on processors other than x86-64.
pub(crate) fn fetch_soon<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint reads nothing that the program sees, and the address is that of a live value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
