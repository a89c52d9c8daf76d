//! A fake clock: a test controls the clocks of a running server.
//!
//! The server preloads a small library (`shim/clock.c`), which reads the clocks from a mapped file. libfaketime does
//! not work here: it hangs a server that was built with jemalloc.

// Shared memory with another process, and `clock_gettime` for its first values.
#![allow(unsafe_code)]

use crate::locate;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The clocks of every server that was started with it. For clocks that differ, give each server its own.
///
/// A new one shows the kernel's time.
#[derive(Debug, Clone)]
pub struct FakeClock {
    shared: Arc<ClockShared>,
}

/// The layout is repeated in `shim/clock.c`.
#[repr(C)]
struct Control {
    wall_offset_ns: AtomicI64,
    module_frozen: AtomicI64,
    module_mono_ns: AtomicI64,
    module_raw_ns: AtomicI64,
    /// The time by which both monotonic clocks were advanced together, in ns. It is one number, so that the module
    /// never sees only one clock advanced.
    module_both_ns: AtomicI64,
}

#[derive(Debug)]
struct ClockShared {
    file: NamedTempFile,
    control: NonNull<Control>,
}

// SAFETY: the mapping lives as long as `ClockShared`, is not tied to a thread, and holds nothing but atomics.
unsafe impl Send for ClockShared {}
// SAFETY: as above; every access goes through an atomic.
unsafe impl Sync for ClockShared {}

impl FakeClock {
    /// A clock that shows the kernel's time.
    ///
    /// # Panics
    /// When there is no C compiler to build the shim with, or no room for its file.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "making a clock creates a file and may compile the shim")]
    pub fn new() -> Self {
        shim();
        let file = tempfile::Builder::new().prefix("rl-clock-").tempfile().expect("a file for the clock");
        file.as_file().set_len(size_of::<Control>() as u64).expect("the clock's file can grow");
        let control = map(file.as_file());
        Self { shared: Arc::new(ClockShared { file, control }) }
    }

    /// Sets the wall clock forward, or back if `seconds` is negative.
    pub fn jump_wall(&self, seconds: i64) {
        self.control().wall_offset_ns.fetch_add(seconds * 1_000_000_000, SeqCst);
    }

    /// Freezes both monotonic clocks for the module. From now on they move only with the `advance_*` methods.
    ///
    /// The server itself sees the kernel's time, because its event loop must keep running.
    pub fn freeze_module(&self) {
        let control = self.control();
        // Whole milliseconds, so that a test can predict the remaining time of a lock exactly.
        let stopped = |clock| read(clock) / 1_000_000 * 1_000_000;
        control.module_mono_ns.store(stopped(libc::CLOCK_MONOTONIC), SeqCst);
        control.module_raw_ns.store(stopped(libc::CLOCK_MONOTONIC_RAW), SeqCst);
        control.module_frozen.store(1, SeqCst);
    }

    /// Advances both monotonic clocks of the module.
    ///
    /// # Panics
    /// When the clocks are not frozen: the module would not see the change.
    pub fn advance_module(&self, time: Duration) {
        self.advance(&self.control().module_both_ns, time);
    }

    /// Advances only CLOCK_MONOTONIC, as if it were slewed too fast.
    ///
    /// # Panics
    /// As [`FakeClock::advance_module`].
    pub fn advance_mono(&self, time: Duration) {
        self.advance(&self.control().module_mono_ns, time);
    }

    /// Advances only CLOCK_MONOTONIC_RAW, as if the oscillator were too fast.
    ///
    /// # Panics
    /// As [`FakeClock::advance_module`].
    pub fn advance_raw(&self, time: Duration) {
        self.advance(&self.control().module_raw_ns, time);
    }

    fn advance(&self, clock: &AtomicI64, time: Duration) {
        assert_eq!(self.control().module_frozen.load(SeqCst), 1, "only a frozen clock can be advanced");
        clock.fetch_add(i64::try_from(time.as_nanos()).expect("less than 292 years"), SeqCst);
    }

    /// Makes `command` start with these clocks.
    pub(crate) fn preload_into(&self, command: &mut Command) {
        command.env("LD_PRELOAD", shim()).env("REDLOCK_CLOCK_FILE", self.shared.file.path());
        // The shim recognizes the module by its file name, as the loader reports it.
        if let Some(name) = locate::module_name() {
            command.env("REDLOCK_CLOCK_MODULE", name);
        }
    }

    fn control(&self) -> &Control {
        // SAFETY: `map` made it: aligned to a page and zeroed; unmapped only when `ClockShared` is dropped.
        unsafe { self.shared.control.as_ref() }
    }
}

impl Drop for ClockShared {
    fn drop(&mut self) {
        // SAFETY: the address and size are those of the mapping made in `map`, and no reference is left.
        unsafe { libc::munmap(self.control.as_ptr().cast(), size_of::<Control>()) };
    }
}

fn map(file: &File) -> NonNull<Control> {
    use std::os::fd::AsRawFd;
    let (size, protection) = (size_of::<Control>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new shared mapping of a file that is as long as the mapping; the kernel chooses the address.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(address, libc::MAP_FAILED, "the clock's file cannot be mapped");
    NonNull::new(address.cast()).expect("a mapping is never at address zero")
}

fn read(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to a place that holds one.
    let outcome = unsafe { libc::clock_gettime(clock, &mut now) };
    assert_eq!(outcome, 0, "the kernel reads the clock");
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The compiled shim, built once for each version of its source. Test processes may build it at the same time: each
/// renames a complete file into place.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let source = include_str!("shim/clock.c");
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        let folder = locate::target_dir().join("tmp");
        let library = folder.join(format!("clock-{:016x}.so", hasher.finish()));
        if !library.is_file() {
            std::fs::create_dir_all(&folder).expect("cargo's target folder is writable");
            let built = NamedTempFile::new_in(&folder).expect("cargo's target folder is writable");
            compile(source, built.path());
            built.persist(&library).expect("the compiled shim can be renamed");
        }
        library
    })
}

fn compile(source: &str, library: &Path) {
    let mut compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-x", "c", "-", "-o"])
        .arg(library)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler named `cc` builds the clock shim (Debian: apt install gcc)");
    let mut input = compiler.stdin.take().expect("a pipe to the compiler");
    input.write_all(source.as_bytes()).expect("the compiler reads its source");
    drop(input);
    assert!(compiler.wait().expect("the compiler ends").success(), "the clock shim does not compile");
}
