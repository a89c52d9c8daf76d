//! The state that a proxy's tasks and the test share.

use super::rules::{AcceptMode, Rules};
use std::collections::HashMap;
use tokio::sync::watch;

/// The rules in force, and the counts so far.
#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) rules: watch::Sender<Rules>,
    pub(super) observed: watch::Sender<Observed>,
}

/// What the proxy has observed so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Observed {
    /// How often each command has reached the proxy, by name.
    pub(super) commands: HashMap<String, usize>,
    /// How many commands and replies the proxy has discarded because of a rule.
    pub(super) dropped: usize,
    /// How many connections the proxy has accepted.
    pub(super) accepted: usize,
    /// The open connections, each as the number of cuts when it began.
    pub(super) live: Vec<u64>,
    /// The number of cuts.
    pub(super) cuts: u64,
    /// The mode in force.
    pub(super) accept_mode: Option<AcceptMode>,
}

impl ProxyState {
    pub(super) fn new() -> Self {
        Self {
            rules: watch::Sender::new(Rules::default()),
            observed: watch::Sender::new(Observed::default()),
        }
    }

    /// Counts a command that has reached the proxy.
    pub(super) fn count_command(&self, name: &str) {
        self.observed.send_modify(|observed| *observed.commands.entry(name.to_string()).or_default() += 1);
    }
}
