//! How far a node raises a fence, and which fences are within reach.
//!
//! One command raises a fence to at most [`raise_limit`]. A client that needs a larger fence sends more
//! commands, in this attempt and, because a node never lowers a fence, in the next ones. So a client that has
//! raised its own key with many commands delays another client whose key has the same counter, but cannot
//! lock it out.

use redlock_contract::limits::{MAX_FLOOR, RAISE_STEP, raise_limit};

/// The number of commands that raise a node from `fence` to `goal`: 0 if they are equal, `None` if the goal is out of
/// reach.
#[must_use]
pub fn commands_to_raise(fence: u64, goal: u64) -> Option<u64> {
    if fence == goal {
        return Some(0);
    }
    // Each command after the first raises by one step.
    is_within_reach(fence, goal).then(|| 1 + goal.saturating_sub(raise_limit(fence)).div_ceil(RAISE_STEP))
}

/// Whether a node with `fence` can be raised to `goal`, or has it already. Only a broken node replies with a
/// fence above [`MAX_FLOOR`].
#[must_use]
pub fn is_within_reach(fence: u64, goal: u64) -> bool {
    fence == goal || (fence < goal && goal <= MAX_FLOOR)
}

/// Whether a node obeyed a raise: it reached the goal, or advanced by a whole step.
#[must_use]
pub fn has_advanced(before: u64, after: u64, goal: u64) -> bool {
    after >= goal || after >= before.saturating_add(RAISE_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::limits::{MAX_FENCE, RAISE_CAP};

    /// The fence of a node after one command.
    fn raised(fence: u64, goal: u64) -> u64 {
        fence.max(goal.min(raise_limit(fence)))
    }

    #[test]
    fn every_distance_has_its_number_of_commands() {
        let table = [
            (7, 7, Some(0)),
            (MAX_FENCE, MAX_FENCE, Some(0)),
            (7, 8, Some(1)),
            (1, RAISE_CAP, Some(1)),
            (1, RAISE_CAP + 1, Some(2)),
            (1, RAISE_CAP + RAISE_STEP, Some(2)),
            (1, RAISE_CAP + RAISE_STEP + 1, Some(3)),
            (RAISE_CAP - 5, RAISE_CAP + 5, Some(1)),
            // The first command raises by a whole step, which is beyond the cap.
            (RAISE_CAP - 5, RAISE_CAP + 2 * RAISE_STEP - 5, Some(2)),
            (RAISE_CAP, RAISE_CAP + RAISE_STEP, Some(1)),
            (RAISE_CAP + 3, RAISE_CAP + 4 + RAISE_STEP, Some(2)),
            (RAISE_CAP, RAISE_CAP + 1_000 * RAISE_STEP, Some(1_000)),
            (1, RAISE_CAP + 1_000 * RAISE_STEP, Some(1_001)),
            (MAX_FLOOR - 1, MAX_FLOOR, Some(1)),
            // Only a broken node replies with these fences.
            (MAX_FLOOR, MAX_FLOOR + 1, None),
            (1, MAX_FENCE, None),
            (MAX_FENCE - 1, MAX_FENCE, None),
            (MAX_FENCE, MAX_FENCE + 1, None),
            (1, u64::MAX, None),
            // No command lowers a fence.
            (8, 7, None),
        ];
        for (fence, goal, commands) in table {
            assert_eq!(commands_to_raise(fence, goal), commands, "from {fence} to {goal}");
        }
    }

    #[test]
    fn a_node_takes_as_many_commands_as_foretold() {
        let edges = [0, 1, 7, RAISE_STEP, RAISE_CAP - 5, RAISE_CAP];
        let near = |edge: u64| (0..4).map(move |steps| edge.saturating_add(steps * (RAISE_STEP - 1)));
        let all = || edges.into_iter().flat_map(near).filter(|fence| (1..=MAX_FENCE).contains(fence));
        for (fence, goal) in all().flat_map(|fence| all().map(move |goal| (fence, goal))) {
            let Some(commands) = commands_to_raise(fence, goal) else { continue };
            let mut at = fence;
            for _ in 0..commands {
                let next = raised(at, goal);
                assert!(next > at && has_advanced(at, next, goal), "{at} to {goal}");
                at = next;
            }
            assert_eq!(at, goal, "from {fence} to {goal} in {commands}");
        }
    }

    #[test]
    fn a_node_that_hardly_advances_has_not_advanced() {
        assert!(has_advanced(1, 9, 9) && has_advanced(1, 12, 9));
        assert!(!has_advanced(1, RAISE_STEP, RAISE_CAP));
        assert!(has_advanced(1, 1 + RAISE_STEP, RAISE_CAP));
    }
}
