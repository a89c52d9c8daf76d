//! Clocks that run at different rates.

use fastrand::Rng;
use redlock_core::Millis;
use redlock_proto::Moment;

/// The true time of a history, in microseconds. No client and no node can read it.
pub(super) type TrueTime = u64;

/// A counter with its own rate and start.
#[derive(Clone, Copy, Debug)]
struct Rate {
    start_ns: u64,
    per_million: u64,
}

impl Rate {
    fn any(chance: &mut Rng, ppm: u32) -> Self {
        let off = u64::from(chance.u32(0..=2 * ppm));
        Self { start_ns: chance.u64(0..1 << 50), per_million: 1_000_000 + off - u64::from(ppm) }
    }

    fn at(self, elapsed_us: u64) -> u64 {
        self.start_ns + elapsed_us * self.per_million / 1_000
    }
}

/// The two clocks of a client's machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientClock {
    sleep_counting: Rate,
    unslewed: Rate,
    slept_us: u64,
}

impl ClientClock {
    /// Two clocks whose rates are off by at most `ppm` parts per million.
    pub(super) fn any(chance: &mut Rng, ppm: u32) -> Self {
        Self { sleep_counting: Rate::any(chance, ppm), unslewed: Rate::any(chance, ppm), slept_us: 0 }
    }

    /// The time that both clocks show.
    #[must_use]
    pub(super) fn at(&self, now: TrueTime) -> Moment {
        Moment::new(self.sleep_counting.at(now), self.unslewed.at(now.saturating_sub(self.slept_us)))
    }

    /// The machine has slept: one of the clocks has stood still.
    pub(super) fn slept(&mut self, for_us: u64) {
        self.slept_us += for_us;
    }
}

impl ClientClock {
    /// A deliberate bug: both clocks follow the wall clock.
    pub(super) fn jump(&mut self, us: i64) {
        for rate in [&mut self.sleep_counting, &mut self.unslewed] {
            rate.start_ns = rate.start_ns.saturating_add_signed(us * 1_000);
        }
    }
}

/// The clock of a node. It never stands still.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeTime(Rate);

impl NodeTime {
    /// A clock whose rate is off by at most `ppm` parts per million.
    pub(super) fn any(chance: &mut Rng, ppm: u32) -> Self {
        Self(Rate { start_ns: Millis::START.0 * 1_000_000, ..Rate::any(chance, ppm) })
    }

    /// The time that the clock shows, in whole milliseconds.
    #[must_use]
    pub(super) fn at(self, now: TrueTime) -> Millis {
        Millis(self.0.at(now) / 1_000_000)
    }
}
