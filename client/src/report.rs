//! What became of a release, node by node.

use redlock_proto::{Quorum, ReleaseOutcome, ReleaseProgress};
use std::fmt;
use std::sync::Arc;

/// What became of a release.
///
/// A release never fails: where a node could not be told, the lock ends by itself.
#[derive(Clone, Debug)]
pub struct ReleaseReport {
    was_held: bool,
    nodes: Vec<NodeRelease>,
}

/// What one node made of a release.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeRelease {
    /// The node's address.
    pub node: Arc<str>,
    /// What it answered so far: the report does not wait for stragglers.
    pub outcome: ReleaseOutcome,
}

impl ReleaseReport {
    pub(crate) fn new(was_held: bool, names: &[Arc<str>], progress: Option<&ReleaseProgress>) -> Self {
        let answers = progress.map(ReleaseProgress::nodes).unwrap_or_default();
        let release = |(node, name): (usize, &Arc<str>)| NodeRelease {
            node: Arc::clone(name),
            outcome: answers.get(node).cloned().unwrap_or(ReleaseOutcome::Pending),
        };
        Self { was_held, nodes: names.iter().enumerate().map(release).collect() }
    }

    /// What all nodes made of the release of a lock whose validity nobody here has watched: it was held if a
    /// majority had it.
    pub(crate) fn of_nodes(nodes: Vec<NodeRelease>) -> Self {
        let mut report = Self { was_held: false, nodes };
        report.was_held = report.is_free_on_a_majority();
        report
    }

    /// Whether the lock was still valid when it was released. If not, somebody else may have held it since;
    /// the fence is what kept them apart.
    #[must_use]
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    /// How many nodes have freed the lock so far.
    #[must_use]
    pub fn freed(&self) -> usize {
        self.nodes.iter().filter(|release| release.outcome == ReleaseOutcome::Freed).count()
    }

    /// Whether a majority of the nodes has freed the lock: the next one can have it now.
    #[must_use]
    pub fn is_free_on_a_majority(&self) -> bool {
        Quorum::of(self.nodes.len()).is_some_and(|quorum| quorum.is_reached_by(self.freed()))
    }

    /// What every node made of it, in the order in which they were configured.
    #[must_use]
    pub fn nodes(&self) -> &[NodeRelease] {
        &self.nodes
    }
}

impl fmt::Display for ReleaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, release) in self.nodes.iter().enumerate() {
            let gap = if place == 0 { "" } else { "; " };
            write!(f, "{gap}{}: {}", release.node, release.outcome)?;
        }
        Ok(())
    }
}
