//! Whether a node that starts may have forgotten locks.
//!
//! It has not if the server was shut down in order and the locks that were loaded are the ones that there
//! were: their seal is in the ledger. In every other case the node waits until all locks that it may have
//! forgotten are over.

use redlock_core::ledger::{Ledger, Seal};

use crate::server::api::{Ctx, Level};
use crate::state::{self, State};
use crate::vault;

/// When to wait after a start: `redlock.restart-grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Unless nothing was forgotten for certain.
    #[default]
    Auto,
    /// In any case, and a new node as long as `redlock.max-ttl`.
    Always,
    /// Never: two clients may then hold a lock that a crash has made the node forget.
    Off,
}

impl Grace {
    /// All of them, in the order of their numbers.
    pub(crate) const NAMES: [&'static str; 3] = ["auto", "always", "off"];

    pub(crate) fn from_number(number: usize) -> Self {
        [Self::Auto, Self::Always, Self::Off].get(number).copied().unwrap_or_default()
    }
}

/// Decides about waiting when the module is loaded. `before` is what the node remembers of its last life.
pub(crate) fn begin(state: &mut State, ctx: Ctx<'_>, before: Option<&Ledger>) {
    let wait_ms = match (state.grace, before) {
        (Grace::Off, _) | (Grace::Auto, None) => 0,
        (Grace::Auto, Some(ledger)) => ledger.quarantine_ms(),
        (Grace::Always, None) => state.node.max_ttl_ms(),
        (Grace::Always, Some(ledger)) => ledger.quarantine_ms().max(1),
    };
    if wait_ms > 0 {
        state.node.quarantine(wait_ms, &mut state.clock);
    }
    // Whether the locks are all there is known once the dataset is loaded.
    state.expected =
        before.and_then(|ledger| ledger.seal).filter(|_| wait_ms > 0 && state.grace == Grace::Auto);
    match before {
        None => ctx
            .log(Level::Notice, "this node is new: it has given out no fence and can have forgotten no lock"),
        Some(ledger) => ctx.log(
            Level::Notice,
            &format!(
                "this node goes on: fences above {}, longest time to live {} ms",
                ledger.mark, ledger.longest_ttl_ms
            ),
        ),
    }
}

/// Ends the wait if the locks that are here now are the ones there were at the end of the last life.
pub(crate) fn settle(ctx: Ctx<'_>) {
    state::with(|state| {
        if state.is_loading {
            return;
        }
        if state.expected.take_if(|expected| state.node.seal() == *expected).is_some() {
            state.node.end_quarantine();
            ctx.log(Level::Notice, "every lock is here: no quarantine");
        }
    });
}

/// Says how long nothing is granted, once the dataset is there.
pub(crate) fn announce(ctx: Ctx<'_>) {
    state::with(|state| {
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if !std::mem::replace(&mut state.is_announced, true) && left_ms > 0 {
            ctx.log(
                Level::Warning,
                &format!("quarantine: locks may have been forgotten, nothing is granted for {left_ms} ms"),
            );
        }
    });
}

/// The server shuts down in order: the next life can tell whether it has all locks.
pub(crate) fn shut_down() {
    state::with(|state| {
        // A node that is waiting does not know its locks.
        if state.node.quarantine_left_ms(&mut state.clock) > 0 {
            return;
        }
        let seal: Seal = state.node.seal();
        let ledger = Ledger { seal: Some(seal), ..state.node.ledger().clone() };
        if vault::store(&ledger).is_ok() {
            state.node.set_ledger(ledger);
        }
    });
}
