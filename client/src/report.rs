//! The outcome of a release, per node.

use crate::settings::Settings;
use redlock_proto::{Quorum, ReleaseOutcome, ReleaseProgress};
use std::fmt;
use std::sync::Arc;

/// The outcome of a release.
///
/// A release never fails: on a node that the client cannot reach, the lock expires.
#[derive(Clone, Debug)]
pub struct ReleaseReport {
    was_held: bool,
    quorum: Quorum,
    nodes: Vec<NodeRelease>,
}

/// The outcome of a release on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeRelease {
    /// The address of the node.
    pub node: Arc<str>,
    /// The answer of the node so far. The report does not wait for slow nodes.
    pub outcome: ReleaseOutcome,
}

impl ReleaseReport {
    pub(crate) fn new(was_held: bool, settings: &Settings, progress: Option<&ReleaseProgress>) -> Self {
        let answers = progress.map(ReleaseProgress::nodes).unwrap_or_default();
        let release = |(node, name): (usize, &Arc<str>)| NodeRelease {
            node: Arc::clone(name),
            outcome: answers.get(node).cloned().unwrap_or(ReleaseOutcome::Pending),
        };
        let nodes = settings.names.iter().enumerate().map(release).collect();
        Self { was_held, quorum: settings.quorum, nodes }
    }

    /// The report for a detached lock, whose validity this client did not track. The lock counts as held if a
    /// majority of the nodes released it.
    pub(crate) fn of_nodes(quorum: Quorum, nodes: Vec<NodeRelease>) -> Self {
        let mut report = Self { was_held: false, quorum, nodes };
        report.was_held = report.is_free_on_a_majority();
        report
    }

    /// Whether the lock was still valid at its release. If not, another client may have held it before the
    /// release, and only the fence has protected the storage.
    #[must_use]
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    /// How many nodes have released the lock so far.
    #[must_use]
    pub fn freed(&self) -> usize {
        self.nodes.iter().filter(|release| release.outcome == ReleaseOutcome::Freed).count()
    }

    /// Whether a majority of the nodes has released the lock: the next client can acquire it now.
    #[must_use]
    pub fn is_free_on_a_majority(&self) -> bool {
        self.quorum.is_reached_by(self.freed())
    }

    /// How many nodes are a majority.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// The outcome on every node, in the order of configuration.
    #[must_use]
    pub fn nodes(&self) -> &[NodeRelease] {
        &self.nodes
    }
}

/// How many nodes have released the lock, and the answer of every node.
impl fmt::Display for ReleaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "released on {} of {} nodes", self.freed(), self.nodes.len())?;
        if !self.was_held {
            f.write_str(", after the lock had ended")?;
        }
        f.write_str(": ")?;
        for (place, release) in self.nodes.iter().enumerate() {
            let gap = if place == 0 { "" } else { "; " };
            write!(f, "{gap}{}: {}", release.node, release.outcome)?;
        }
        Ok(())
    }
}
