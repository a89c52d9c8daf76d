//! The settings: `CONFIG SET redlock.*`, and the same names as arguments of the module.
//!
//! An argument is the default of its setting. So a value that `CONFIG REWRITE` has stored overrides an argument in the
//! `loadmodule` line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use redlock_contract::limits::{
    DEFAULT_CLAIM_WINDOW_MS, DEFAULT_LATE_WINDOW_MS, DEFAULT_MAX_TTL_MS, MAX_CLAIM_MS, MAX_LATE_WINDOW_MS,
    MAX_TTL_LIMIT_MS,
};
use redlock_contract::settings;
use redlock_core::queue::DEFAULT_LIMITS;
use redlock_core::request;
use redlock_core::start::Grace;

use crate::state::{self, ModuleState};
use crate::state_file;

/// A numeric setting.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) range: (u64, u64),
    get: fn(&ModuleState) -> u64,
    set: fn(&mut ModuleState, u64),
}

/// The largest value of every limit on waiters.
const MAX_WAITERS: u64 = 10_000_000;

/// The largest value of `redlock.max-waiters-memory`: 1 TiB.
const MAX_WAITERS_BYTES: u64 = 1 << 40;

/// All numeric settings. The server knows each by its index.
pub(crate) const SETTINGS: [Setting; 7] = [
    Setting {
        name: settings::MAX_TTL,
        default: DEFAULT_MAX_TTL_MS,
        range: (1, MAX_TTL_LIMIT_MS),
        get: |state| state.node.max_ttl_ms(),
        set: |state, value| state.node.set_max_ttl_ms(value),
    },
    Setting {
        name: settings::LATE_WINDOW,
        default: DEFAULT_LATE_WINDOW_MS,
        range: (0, MAX_LATE_WINDOW_MS),
        get: |state| state.node.late_window_ms(),
        set: |state, value| state.node.set_late_window_ms(value),
    },
    Setting {
        name: settings::CLAIM_WINDOW,
        default: DEFAULT_CLAIM_WINDOW_MS,
        range: (1, MAX_CLAIM_MS),
        get: |state| state.node.claim_window_ms(),
        set: |state, value| state.node.set_claim_window_ms(value),
    },
    Setting {
        name: settings::MAX_WAITERS,
        default: DEFAULT_LIMITS.node,
        range: (0, MAX_WAITERS),
        get: |state| state.node.waiter_limits().node,
        set: |state, value| state.node.waiter_limits_mut().node = value,
    },
    Setting {
        name: settings::MAX_WAITERS_PER_KEY,
        default: DEFAULT_LIMITS.key,
        range: (0, MAX_WAITERS),
        get: |state| state.node.waiter_limits().key,
        set: |state, value| state.node.waiter_limits_mut().key = value,
    },
    Setting {
        name: settings::MAX_WAITERS_PER_CONNECTION,
        default: DEFAULT_LIMITS.connection,
        range: (0, MAX_WAITERS),
        get: |state| state.node.waiter_limits().connection,
        set: |state, value| state.node.waiter_limits_mut().connection = value,
    },
    Setting {
        name: settings::MAX_WAITERS_MEMORY,
        default: DEFAULT_LIMITS.bytes,
        range: (0, MAX_WAITERS_BYTES),
        get: |state| state.node.waiter_limits().bytes,
        set: |state, value| state.node.waiter_limits_mut().bytes = value,
    },
];

/// The value of a setting.
pub(crate) fn get(which: usize) -> u64 {
    SETTINGS.get(which).and_then(|setting| state::with(|state| (setting.get)(state))).unwrap_or(0)
}

/// Sets a setting.
pub(crate) fn set(which: usize, value: u64) {
    if let Some(setting) = SETTINGS.get(which) {
        state::with(|state| (setting.set)(state, value));
    }
}

/// The value of `redlock.restart-grace`.
pub(crate) fn grace() -> Grace {
    state::with(|state| state.grace).unwrap_or_default()
}

/// Sets `redlock.restart-grace`. It takes effect at the next start.
pub(crate) fn set_grace(grace: Grace) {
    state::with(|state| state.grace = grace);
}

/// The module's arguments.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The default of each setting.
    pub(crate) defaults: [u64; SETTINGS.len()],
    /// The default of `redlock.restart-grace`.
    pub(crate) grace: Grace,
    /// The name of the state file, if the module does not search for it.
    pub(crate) state_file: Option<PathBuf>,
    /// A server without a state file and without data does not vote until an operator admits it.
    pub(crate) new_node_is_non_voting: bool,
}

/// Reads the module's arguments: pairs of a name and a value.
///
/// # Errors
/// The argument that is wrong, and the allowed values.
pub(crate) fn arguments(args: &[&[u8]]) -> Result<Arguments, String> {
    let mut read = Arguments {
        defaults: SETTINGS.each_ref().map(|setting| setting.default),
        grace: Grace::Auto,
        state_file: None,
        new_node_is_non_voting: false,
    };
    for pair in args.chunks(2) {
        let value = pair.get(1).copied().unwrap_or_default();
        read.take(pair[0], value)
            .map_err(|why| format!("module argument '{}' {why}", pair[0].escape_ascii()))?;
    }
    Ok(read)
}

impl Arguments {
    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let is = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        if let Some(which) = SETTINGS.iter().position(|setting| is(setting.name)) {
            let (least, most) = SETTINGS[which].range;
            self.defaults[which] = request::integer(value)
                .filter(|value| (least..=most).contains(value))
                .ok_or_else(|| format!("needs an integer from {least} to {most}"))?;
        } else if is(settings::RESTART_GRACE) {
            let which = Grace::NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(value));
            self.grace = which
                .map(Grace::from_number)
                .ok_or_else(|| format!("needs one of {}", Grace::NAMES.join(", ")))?;
        } else if is(settings::STATE_FILE) {
            let path = PathBuf::from(OsStr::from_bytes(value));
            if !state_file::has_ending(&path) {
                return Err("needs a file name that ends with .state: without the argument, the server searches its dir for such a file".to_owned());
            }
            self.state_file = Some(path);
        } else if is(settings::NEW_NODE) {
            self.new_node_is_non_voting = match value {
                _ if value.eq_ignore_ascii_case(b"voting") => false,
                _ if value.eq_ignore_ascii_case(b"non-voting") => true,
                _ => return Err("needs one of voting, non-voting".to_owned()),
            };
        } else {
            let others = [settings::RESTART_GRACE, settings::STATE_FILE, settings::NEW_NODE];
            let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).chain(others).collect();
            return Err(format!("is unknown; known are {}", known.join(", ")));
        }
        Ok(())
    }
}
