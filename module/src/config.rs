//! Settings: `CONFIG SET redlock.*`, and the same names as arguments of the module.
//!
//! An argument is the default of its setting. So a value that `CONFIG REWRITE` has stored wins over an
//! argument that still stands in the `loadmodule` line.

use redlock_core::late::DEFAULT_WINDOW_MS;
use redlock_core::request::{self, DEFAULT_MAX_TTL_MS, MAX_TTL_LIMIT_MS};

use crate::state::{self, State};

/// A setting that is a number.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) range: (u64, u64),
    get: fn(&State) -> u64,
    set: fn(&mut State, u64),
}

/// All settings. Their order names them towards the server.
pub(crate) const SETTINGS: [Setting; 2] = [
    Setting {
        name: "max-ttl",
        default: DEFAULT_MAX_TTL_MS,
        range: (1, MAX_TTL_LIMIT_MS),
        get: |state| state.node.max_ttl_ms(),
        set: |state, value| state.node.set_max_ttl_ms(value),
    },
    Setting {
        name: "late-window",
        default: DEFAULT_WINDOW_MS,
        range: (0, 3_600_000),
        get: |state| state.node.late_window_ms(),
        set: |state, value| state.node.set_late_window_ms(value),
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

/// The default of each setting, after the module's arguments: names and values in turn.
///
/// # Errors
/// Which argument is not understood, and what would be.
pub(crate) fn defaults(arguments: &[&[u8]]) -> Result<[u64; SETTINGS.len()], String> {
    let mut defaults = SETTINGS.each_ref().map(|setting| setting.default);
    for pair in arguments.chunks(2) {
        let shown = pair[0].escape_ascii();
        let Some(which) =
            SETTINGS.iter().position(|setting| setting.name.as_bytes().eq_ignore_ascii_case(pair[0]))
        else {
            let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
            return Err(format!("unknown module argument '{shown}'; known are {}", known.join(", ")));
        };
        let (least, most) = SETTINGS[which].range;
        defaults[which] = pair
            .get(1)
            .and_then(|value| request::integer(value))
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("module argument '{shown}' needs an integer from {least} to {most}"))?;
    }
    Ok(defaults)
}
