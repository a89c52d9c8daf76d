//! The votes of one attempt: one fence from a majority.
//!
//! **A client holds a lock with fence F when a majority of the nodes have answered exactly F, each while
//! holding the lock for its owner, and hold it still.** Any two majorities share a node. If two holders exclude
//! each other, because not both share the lock, that node held the lock for one of them first, and gave the
//! other a larger fence. So two such holders never have the same fence, and the later one has the larger,
//! whatever clocks and pauses do.
//!
//! Only equal answers count. If a client took the largest fence that a node answered, two holders could have
//! the same fence within 12 steps: possibly only one node knows the largest.

use crate::fence_reach::{commands_to_raise, is_within_reach};
use crate::{Failure, NodeSet, Quorum, Vote};
use std::time::Duration;

/// The votes of one attempt.
#[derive(Clone, Debug)]
pub struct Ballot {
    quorum: Quorum,
    votes: Vec<Vote>,
}

/// The result of the votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The votes decide nothing yet: answers are pending.
    Open,
    /// A majority has answered this fence.
    Agreed {
        /// The fence of the lock.
        fence: u64,
    },
    /// A majority has granted, with different fences.
    Split {
        /// The smallest answered fence to which a majority can be raised with one command each; without such a
        /// fence, with several commands.
        /// So the client does not raise the others to one node that is far ahead. If there is no such fence,
        /// because nodes are broken, the fence that most nodes answered.
        goal: u64,
        /// Whether pending answers could still make a majority of one fence.
        may_settle: bool,
    },
    /// A majority can no longer grant.
    Lost(Refusal),
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Another client holds the lock on some nodes, and without them there is no majority.
    Contended,
    /// Too few nodes gave a usable answer.
    NoQuorum,
    /// The nodes that did not reject the request itself are no majority.
    Rejected,
    /// Too many nodes are in quarantine.
    Quarantined {
        /// The time after which a majority may grant again.
        left: Duration,
    },
    /// A majority granted too late: the leases had expired.
    Expired,
    /// A majority granted, under fences so far apart that no majority was raised to one fence before the first
    /// lease ended. The next attempt continues from there.
    FencesApart {
        /// The smallest fence that a node answered.
        smallest: u64,
        /// The largest fence that a node answered.
        largest: u64,
    },
    /// The client left the queue: it yielded its nodes to an older ticket that lacked a majority, or the
    /// pushes of too few nodes could arrive. The caller tries again at once.
    Yielded,
}

impl Ballot {
    /// A ballot without votes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, votes: vec![Vote::Pending; quorum.nodes()] }
    }

    /// The vote of every node, in the order of the nodes.
    #[must_use]
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }

    /// The vote of one node.
    #[must_use]
    pub fn vote(&self, node: usize) -> &Vote {
        self.votes.get(node).unwrap_or(&Vote::Pending)
    }

    /// Enters the vote of a node and replaces its earlier vote.
    pub fn enter(&mut self, node: usize, vote: Vote) {
        if let Some(place) = self.votes.get_mut(node) {
            *place = vote;
        }
    }

    /// The nodes whose vote passes a test.
    pub fn nodes(&self, test: impl Fn(&Vote) -> bool) -> NodeSet {
        let matching = self.votes.iter().enumerate().filter(|(_, vote)| test(vote));
        matching.map(|(node, _)| node).collect()
    }

    /// The largest fence that any node has answered.
    #[must_use]
    pub fn highest(&self) -> Option<u64> {
        self.votes.iter().filter_map(Vote::fence).max()
    }

    /// The smallest fence to which one command raises a majority; if there is no such fence, the smallest to
    /// which a majority can be raised at all.
    fn goal(&self) -> Option<u64> {
        self.least_fence(|fence| self.within_one_command(fence))
            .or_else(|| self.least_fence(|fence| self.within(fence)))
    }

    /// The smallest of the answered fences for which this many nodes are a majority.
    fn least_fence(&self, nodes: impl Fn(u64) -> usize) -> Option<u64> {
        let fences = self.votes.iter().filter_map(Vote::fence);
        fences.filter(|fence| self.quorum.is_reached_by(nodes(*fence))).min()
    }

    fn within_one_command(&self, goal: u64) -> usize {
        let takes_one = |fence| commands_to_raise(fence, goal).is_some_and(|commands| commands <= 1);
        self.count(|vote| vote.fence().is_some_and(takes_one))
    }

    /// How many nodes have granted with this fence, or with a smaller one that can be raised to it.
    #[must_use]
    pub fn within(&self, goal: u64) -> usize {
        self.count(|vote| vote.fence().is_some_and(|fence| is_within_reach(fence, goal)))
    }

    /// The refusal of nodes that have granted and were not raised to one fence.
    pub(crate) fn fences_apart(&self) -> Refusal {
        let smallest = self.votes.iter().filter_map(Vote::fence).min().unwrap_or_default();
        Refusal::FencesApart { smallest, largest: self.highest().unwrap_or_default() }
    }

    /// Whether the nodes that granted answered different fences.
    #[must_use]
    pub fn disagrees(&self) -> bool {
        let mut fences = self.votes.iter().filter_map(Vote::fence);
        let first = fences.next();
        fences.any(|fence| Some(fence) != first)
    }

    /// How many nodes have granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted { .. }))
    }

    /// How many nodes have not answered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Pending))
    }

    /// The current result of the votes.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let (granted, pending) = (self.granted(), self.pending());
        if self.quorum.is_reached_by(granted) {
            let (fence, said_by) = self.most_common();
            if self.quorum.is_reached_by(said_by) {
                return Verdict::Agreed { fence };
            }
            let may_settle = self.quorum.is_reached_by(said_by + pending);
            return Verdict::Split { goal: self.goal().unwrap_or(fence), may_settle };
        }
        if self.quorum.is_reached_by(granted + pending) {
            Verdict::Open
        } else {
            Verdict::Lost(self.refusal())
        }
    }

    /// Why no majority can grant. The most helpful reason comes first: enough nodes rejected the request
    /// itself, or another client holds the lock, or nodes are in quarantine, or nodes are
    /// unreachable. The reason is another client if a majority could have granted without that client.
    pub(crate) fn refusal(&self) -> Refusal {
        if is_impossible_without(self.quorum, &self.votes, Failure::is_rejection) {
            return Refusal::Rejected;
        }
        let fit = self.count(|vote| matches!(vote, Vote::Granted { .. } | Vote::Refused | Vote::Pending));
        if self.quorum.is_reached_by(fit) {
            return Refusal::Contended;
        }
        // The shortest wait after which the nodes that answered are a majority again.
        let wait = self.time_until_enough_grant(self.quorum.needed() - fit);
        wait.map_or(Refusal::NoQuorum, |left| Refusal::Quarantined { left })
    }

    /// How long a retry must fail because nodes are in quarantine. Zero if the other nodes, including those
    /// that failed, are enough for a majority: a node that failed may recover at any moment.
    #[must_use]
    pub fn retry_after_quarantine(&self) -> Duration {
        let others = self.count(|vote| !matches!(vote, Vote::Quarantined { .. }));
        let missing = self.quorum.needed().saturating_sub(others);
        self.time_until_enough_grant(missing).unwrap_or_default()
    }

    /// The time until `count` of the nodes in quarantine grant again; `None` if fewer are in quarantine, or
    /// `count` is 0.
    fn time_until_enough_grant(&self, count: usize) -> Option<Duration> {
        let mut waits: Vec<Duration> = self.votes.iter().filter_map(quarantine).collect();
        waits.sort_unstable();
        waits.get(count.checked_sub(1)?).copied()
    }

    /// The fence that most nodes have answered, and how many did.
    fn most_common(&self) -> (u64, usize) {
        let fences = self.votes.iter().filter_map(Vote::fence);
        let counted = fences.map(|fence| (fence, self.count(|vote| vote.fence() == Some(fence))));
        counted.max_by_key(|(_, count)| *count).unwrap_or_default()
    }

    fn count(&self, test: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| test(vote)).count()
    }
}

/// Whether the nodes without such a failure are no majority, whatever those that have not answered vote.
#[must_use]
pub fn is_impossible_without<'a>(
    quorum: Quorum,
    votes: impl IntoIterator<Item = &'a Vote>,
    test: impl Fn(&Failure) -> bool,
) -> bool {
    let has_failed = |vote: &&Vote| matches!(vote, Vote::Failed(failure) if test(failure));
    !quorum.is_reached_by(votes.into_iter().filter(|vote| !has_failed(vote)).count())
}

fn quarantine(vote: &Vote) -> Option<Duration> {
    match vote {
        Vote::Quarantined { left } => Some(*left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;
    use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, RAISE_CAP, RAISE_STEP};

    /// A ballot from short votes: `g7` granted with 7, `r` refused, `q9` quarantined for 9 ms, `x` failed,
    /// `n` rejected, `.` pending.
    fn ballot(votes: &str) -> Ballot {
        let votes: Vec<&str> = votes.split(' ').collect();
        let mut ballot = Ballot::new(Quorum::of(votes.len()).unwrap());
        for (node, vote) in votes.iter().enumerate() {
            let number = vote[1..].parse().unwrap_or(0);
            let vote = match &vote[..1] {
                "g" => Vote::Granted { fence: number },
                "r" => Vote::Refused,
                "q" => Vote::Quarantined { left: Duration::from_millis(number) },
                "x" => Vote::Failed(Failure::new(FailureKind::Silent, "")),
                "n" => Vote::Failed(Failure::rejected("NOPERM no permission")),
                _ => Vote::Pending,
            };
            ballot.enter(node, vote);
        }
        ballot
    }

    #[test]
    fn every_ballot_has_its_verdict() {
        use Refusal::{Contended, NoQuorum, Rejected};
        use Verdict::{Agreed, Lost, Open, Split};
        let quarantined = |ms| Lost(Refusal::Quarantined { left: Duration::from_millis(ms) });
        let table = [
            (". . . . .", Open),
            ("g1 g1 . . .", Open),
            ("g1 g1 g1 . .", Agreed { fence: 1 }),
            ("g1 g1 g1 r x", Agreed { fence: 1 }),
            // The fence need not be the largest one.
            ("g9 g4 g4 g4 g8", Agreed { fence: 4 }),
            ("g1 g2 g2 . .", Split { goal: 2, may_settle: true }),
            ("g1 g2 g3 . .", Split { goal: 3, may_settle: true }),
            ("g1 g2 g3 . x", Split { goal: 3, may_settle: false }),
            ("g1 g2 g2 r x", Split { goal: 2, may_settle: false }),
            // The client does not raise the others to a node that is far ahead.
            ("g1 g2 g3 g900 x", Split { goal: 3, may_settle: false }),
            ("g900 g800 g3 g2 g1", Split { goal: 3, may_settle: false }),
            ("g1 g1 r r .", Open),
            ("g1 g1 r r r", Lost(Contended)),
            ("r r r . .", Lost(Contended)),
            // Two granted, one refused: a majority answered, and another client holds one of them.
            ("g1 g1 r x x", Lost(Contended)),
            ("g1 g1 x x x", Lost(NoQuorum)),
            ("r x x x .", Lost(NoQuorum)),
            ("x x x . .", Lost(NoQuorum)),
            ("g1 g1 q50 x x", quarantined(50)),
            ("g1 g1 q50 q20 x", quarantined(20)),
            ("g1 q90 q50 q20 x", quarantined(50)),
            ("q90 q50 q20 . .", quarantined(20)),
            ("g1 r x x .", Lost(Contended)),
            ("q1 x x x .", Lost(NoQuorum)),
            // Rejections decide only if the other nodes are no majority.
            ("n n n . .", Lost(Rejected)),
            ("n n . . .", Open),
            ("n n x . .", Lost(NoQuorum)),
            ("n n g1 g1 g1", Agreed { fence: 1 }),
            ("n n r g1 g1", Lost(Contended)),
            ("n n n r q50", Lost(Rejected)),
            ("n n q50 g1 g1", quarantined(50)),
            ("n n . .", Lost(Rejected)),
            // Even numbers: half is not enough, and a tie is a refusal.
            ("g1 g1 r r", Lost(Contended)),
            ("g1 g1 x x", Lost(NoQuorum)),
            ("g1 g1 g1 r", Agreed { fence: 1 }),
            ("g1 r", Lost(Contended)),
            ("g1 g1", Agreed { fence: 1 }),
            ("g3", Agreed { fence: 3 }),
            ("r", Lost(Contended)),
            ("x", Lost(NoQuorum)),
        ];
        for (votes, verdict) in table {
            assert_eq!(ballot(votes).verdict(), verdict, "{votes}");
        }
    }

    #[test]
    fn when_all_nodes_have_answered_the_verdict_is_final() {
        for nodes in 1..=5_u32 {
            for code in 0..4_u32.pow(nodes) {
                let votes: Vec<&str> = (0..nodes)
                    .map(|node| ["g1", "g2", "r", "x"][(code / 4_u32.pow(node) % 4) as usize])
                    .collect();
                let verdict = ballot(&votes.join(" ")).verdict();
                assert_ne!(verdict, Verdict::Open, "{votes:?}");
                assert!(!matches!(verdict, Verdict::Split { may_settle: true, .. }), "{votes:?}");
            }
        }
    }

    #[test]
    fn a_goal_is_within_the_reach_of_a_majority() {
        let split = |goal| Verdict::Split { goal, may_settle: false };
        let table: [(&[u64], u64); 9] = [
            // Up to the cap any distance takes one command.
            (&[5, 3 << 40, (3 << 40) + 1], 3 << 40),
            (&[1, RAISE_CAP - 1, RAISE_CAP], RAISE_CAP - 1),
            (&[1, 2, RAISE_CAP, MAX_FENCE, MAX_FENCE - 1], RAISE_CAP),
            // Any number of commands is within reach of real nodes.
            (
                &[1, RAISE_CAP + 1_000 * RAISE_STEP, RAISE_CAP + 3_000 * RAISE_STEP],
                RAISE_CAP + 1_000 * RAISE_STEP,
            ),
            // Above it a goal that takes one command comes before a smaller one that takes two.
            (&[1, RAISE_CAP + 5, RAISE_CAP + 9], RAISE_CAP + 9),
            (&[RAISE_CAP + 5, RAISE_CAP + 5 + RAISE_STEP, MAX_FENCE], RAISE_CAP + 5 + RAISE_STEP),
            // If no goal takes one command, the smallest.
            (&[1, RAISE_CAP + 5], RAISE_CAP + 5),
            (
                &[RAISE_CAP, RAISE_CAP + 9 * RAISE_STEP, RAISE_CAP + 20 * RAISE_STEP],
                RAISE_CAP + 9 * RAISE_STEP,
            ),
            (&[MAX_FLOOR, MAX_FLOOR - 1, 1], MAX_FLOOR),
        ];
        for (fences, goal) in table {
            let votes: Vec<String> = fences.iter().map(|fence| format!("g{fence}")).collect();
            let ballot = ballot(&votes.join(" "));
            assert_eq!(ballot.verdict(), split(goal), "{fences:?}");
            assert!(ballot.within(goal) > fences.len() / 2, "{fences:?}");
        }
    }

    #[test]
    fn fences_that_are_too_far_apart_are_named() {
        let ballot = ballot(&format!("g{MAX_FENCE} g7 x"));
        assert_eq!(ballot.within(MAX_FENCE), 1);
        assert_eq!(ballot.fences_apart(), Refusal::FencesApart { smallest: 7, largest: MAX_FENCE });
    }

    #[test]
    fn quarantine_delays_a_retry_only_if_the_other_nodes_are_no_majority() {
        for (votes, ms) in [
            ("g1 g1 q50 q20 q30", 20),
            ("g1 q90 q50 q20 x", 20),
            ("q90 q50 q20 x x", 20),
            ("q90 q50 q20 q10 x", 20),
            // A node that failed may recover before the quarantine of the other ends.
            ("g1 g1 q50 x x", 0),
            ("q60000 x g1", 0),
            ("r q50 x", 0),
            ("x x x", 0),
        ] {
            assert_eq!(ballot(votes).retry_after_quarantine(), Duration::from_millis(ms), "{votes}");
        }
    }

    #[test]
    fn disagreement_is_seen() {
        assert!(ballot("g1 g2 r").disagrees());
        assert!(!ballot("g2 g2 x").disagrees());
        assert!(!ballot("r x .").disagrees());
        assert_eq!(ballot("g1 g7 r").highest(), Some(7));
    }
}
