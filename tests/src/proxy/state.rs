//! What a proxy's tasks and the test share.

use super::rules::{AcceptMode, Rules};
use std::collections::HashMap;
use tokio::sync::watch;

/// What is in force, and what has been seen.
#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) rules: watch::Sender<Rules>,
    pub(super) observed: watch::Sender<Observed>,
}

/// What has come by so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Observed {
    /// How often each command has reached the proxy, by name.
    pub(super) commands: HashMap<String, usize>,
    /// How many commands and replies were thrown away because a rule says so.
    pub(super) dropped: usize,
    /// How many have connected.
    pub(super) accepted: usize,
    /// The connections of this moment, by the count of cuts at which they began.
    pub(super) live: Vec<u64>,
    /// How many cuts have been made.
    pub(super) cuts: u64,
    /// The mode that is in force.
    pub(super) accept_mode: Option<AcceptMode>,
}

impl ProxyState {
    pub(super) fn new() -> Self {
        Self {
            rules: watch::Sender::new(Rules::default()),
            observed: watch::Sender::new(Observed::default()),
        }
    }

    /// Counts a command that has arrived.
    pub(super) fn count_command(&self, name: &str) {
        self.observed.send_modify(|observed| *observed.commands.entry(name.to_string()).or_default() += 1);
    }
}
