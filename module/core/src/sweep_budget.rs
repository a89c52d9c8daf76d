//! How much work one call of the sweep does. The server serves no client during a call.

/// The number of steps of the first call: about 0.2 ms of work if all of them expire locks.
pub const FIRST_STEPS: usize = 256;

/// The largest number of steps of a call.
pub const MOST_STEPS: usize = 4_096;

/// The number of steps of the next call of the sweep. It doubles after a call that leaves work, up to
/// [`MOST_STEPS`]: a few expired locks hardly delay other clients, and a large backlog is swept quickly. The caller
/// also limits the time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepBudget {
    steps: usize,
}

impl Default for SweepBudget {
    fn default() -> Self {
        Self { steps: FIRST_STEPS }
    }
}

impl SweepBudget {
    /// The number of steps of the next call.
    #[must_use]
    pub fn steps(self) -> usize {
        self.steps
    }

    /// Records that a call has done everything there was to do.
    pub fn done(&mut self) {
        *self = Self::default();
    }

    /// Records that a call has left work for the next one.
    pub fn work_is_left(&mut self) {
        self.steps = (self.steps * 2).min(MOST_STEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of calls for this much work.
    fn calls(mut work: usize, budget: &mut SweepBudget) -> usize {
        let mut calls = 0;
        while work > 0 {
            assert!(budget.steps() <= MOST_STEPS);
            work = work.saturating_sub(budget.steps());
            calls += 1;
            if work == 0 {
                budget.done();
            } else {
                budget.work_is_left();
            }
        }
        calls
    }

    #[test]
    fn a_burst_needs_few_calls_and_the_next_one_starts_small() {
        let mut budget = SweepBudget::default();
        assert_eq!(calls(FIRST_STEPS, &mut budget), 1);
        assert_eq!(calls(FIRST_STEPS + 1, &mut budget), 2);
        // 256 + 512 + 1024 + 2048 and 73 times 4096.
        assert_eq!(calls(300_000, &mut budget), 77);
        assert_eq!(budget, SweepBudget::default());
    }
}
