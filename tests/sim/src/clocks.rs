//! Clocks that run at rates of their own.

use fastrand::Rng;
use redlock_core::Millis;
use redlock_proto::Moment;

/// The true time of a history, in microseconds. Nobody in it can read it.
pub(super) type True = u64;

/// Something that counts, at its own rate, from its own start.
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
    /// Two clocks that are off by at most so much.
    pub(super) fn any(chance: &mut Rng, ppm: u32) -> Self {
        Self { sleep_counting: Rate::any(chance, ppm), unslewed: Rate::any(chance, ppm), slept_us: 0 }
    }

    /// What they show.
    #[must_use]
    pub(super) fn at(&self, now: True) -> Moment {
        Moment::new(self.sleep_counting.at(now), self.unslewed.at(now.saturating_sub(self.slept_us)))
    }

    /// The machine has slept: one of the clocks has not noticed.
    pub(super) fn slept(&mut self, for_us: u64) {
        self.slept_us += for_us;
    }
}

impl ClientClock {
    /// What must not be: both clocks follow the wall clock.
    pub(super) fn jump(&mut self, us: i64) {
        for rate in [&mut self.sleep_counting, &mut self.unslewed] {
            rate.start_ns = rate.start_ns.saturating_add_signed(us * 1_000);
        }
    }
}

/// The clock of a node, which stands still for nobody.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeTime(Rate);

impl NodeTime {
    /// A clock that is off by at most so much.
    pub(super) fn any(chance: &mut Rng, ppm: u32) -> Self {
        Self(Rate { start_ns: Millis::START.0 * 1_000_000, ..Rate::any(chance, ppm) })
    }

    /// What it shows, in whole milliseconds.
    #[must_use]
    pub(super) fn at(self, now: True) -> Millis {
        Millis(self.0.at(now) / 1_000_000)
    }
}
