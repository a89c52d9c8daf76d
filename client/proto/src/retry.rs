//! Whether and when an acquire is tried again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The default jitter of an exponential delay, as a share of the delay.
///
/// Contenders that split the nodes among themselves must not collide again, so their delays have to differ by
/// more than a round trip: the wider the better. But a contender that tries again almost at once finds nodes
/// that it is still releasing. In a simulation of five nodes and 2 to 64 contenders, a jitter of four fifths
/// took the fewest attempts; 64 contenders without jitter took almost seven times as many.
const GROWING_JITTER: f64 = 0.8;

/// The default jitter of a fixed delay, as a share of the delay. It is smaller, so that the delay stays
/// recognisable.
const FIXED_JITTER: f64 = 0.5;

/// A retry policy: when the client tries again after a refused acquire, and when it gives up.
///
/// A policy is a value: it reads no clock and draws no random number. The caller counts its attempts and
/// calls [`next`](Self::next) after every refusal.
///
/// | form | delay before the next attempt |
/// |---|---|
/// | [`Retry::none`] | no second attempt |
/// | [`Retry::fixed`] | always the same |
/// | [`Retry::exponential`] | twice the last one, up to a cap |
/// | [`Retry::custom`] | what a function returns |
///
/// The policy then shortens the delay at random, by up to the share given with [`jitter`](Self::jitter).
/// [`max_attempts`](Self::max_attempts) and [`give_up_after`](Self::give_up_after) limit the policy. Without
/// either, the client tries until it gets the lock. The default policy is limited.
///
/// ```
/// # use redlock_proto::retry::Retry;
/// # use std::time::Duration;
/// let retry = Retry::exponential(Duration::from_millis(10), Duration::from_millis(500))
///     .max_attempts(8)
///     .give_up_after(Duration::from_secs(3));
///
/// let random = 0; // no jitter: the whole delay
/// assert_eq!(retry.next(1, Duration::ZERO, random), Some(Duration::from_millis(10)));
/// assert_eq!(retry.next(3, Duration::from_millis(60), random), Some(Duration::from_millis(40)));
/// assert_eq!(retry.next(8, Duration::from_millis(900), random), None);
/// ```
#[derive(Clone)]
pub struct Retry {
    schedule: RetrySchedule,
    /// The largest share of a delay by which the policy shortens it, from 0 to 1.
    jitter: f64,
    max_attempts: Option<u32>,
    give_up_after: Option<Duration>,
}

/// The input of the function of a [`Retry::custom`] policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryContext {
    /// How many attempts have been refused, 1 or more.
    pub attempts_made: u32,
    /// The time since the first attempt began.
    pub elapsed: Duration,
    /// A random number, a new one for every call.
    pub random: u64,
}

type Decide = dyn Fn(RetryContext) -> Option<Duration> + Send + Sync;

#[derive(Clone)]
enum RetrySchedule {
    Never,
    Fixed(Duration),
    Exponential { first: Duration, cap: Duration },
    Custom(Arc<Decide>),
}

/// Exponential from 5 ms to 250 ms with jitter; gives up after 10 s.
impl Default for Retry {
    fn default() -> Self {
        Self::without_limit().give_up_after(Duration::from_secs(10))
    }
}

impl Retry {
    /// The shortest delay; a policy lengthens shorter delays to this one. An attempt without a delay finds the
    /// nodes unchanged, and a loop of such attempts uses a whole core.
    pub const SHORTEST_DELAY: Duration = Duration::from_micros(100);

    /// One attempt, and no retry.
    #[must_use]
    pub fn none() -> Self {
        Self::of(RetrySchedule::Never, 0.0)
    }

    /// The same delay before every attempt, less a jitter of up to half of it.
    ///
    /// Without a limit the policy never gives up: see [`max_attempts`](Self::max_attempts) and
    /// [`give_up_after`](Self::give_up_after).
    #[must_use]
    pub fn fixed(delay: Duration) -> Self {
        Self::of(RetrySchedule::Fixed(delay), FIXED_JITTER)
    }

    /// `first` before the second attempt, then twice the last delay, at most `cap`; less a jitter of up to
    /// four fifths.
    ///
    /// Without a limit the policy never gives up: see [`max_attempts`](Self::max_attempts) and
    /// [`give_up_after`](Self::give_up_after).
    #[must_use]
    pub fn exponential(first: Duration, cap: Duration) -> Self {
        // Zero doubled stays zero: the delay would never reach the cap.
        let first = first.max(Self::SHORTEST_DELAY);
        Self::of(RetrySchedule::Exponential { first, cap }, GROWING_JITTER)
    }

    /// The delays of the default policy, from 5 to 250 ms, without its limit: it never gives up.
    #[must_use]
    pub fn without_limit() -> Self {
        Self::exponential(Duration::from_millis(5), Duration::from_millis(250))
    }

    /// The delay that a function returns; no further attempt if it returns `None`.
    ///
    /// The function gets a random number for its own jitter; the policy adds jitter only if
    /// [`jitter`](Self::jitter) asks for it. The limits of the policy apply as well.
    ///
    /// The client cannot tell how long such a policy goes on. A call that uses it without a time limit of its
    /// own therefore does not queue for a held lock: it polls after each delay that the function returns. If
    /// other clients queue, such a call may get the lock late.
    ///
    /// ```
    /// # use redlock_proto::retry::Retry;
    /// # use std::time::Duration;
    /// // Short delays at first, longer ones later.
    /// let retry = Retry::custom(|context| match context.attempts_made {
    ///     1..=3 => Some(Duration::from_millis(2)),
    ///     4..=20 => Some(Duration::from_millis(100)),
    ///     _ => None,
    /// });
    /// assert_eq!(retry.next(4, Duration::ZERO, 0), Some(Duration::from_millis(100)));
    /// assert_eq!(retry.next(21, Duration::ZERO, 0), None);
    /// ```
    #[must_use]
    pub fn custom(decide: impl Fn(RetryContext) -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self::of(RetrySchedule::Custom(Arc::new(decide)), 0.0)
    }

    fn of(schedule: RetrySchedule, jitter: f64) -> Self {
        Self { schedule, jitter, max_attempts: None, give_up_after: None }
    }

    /// Sets the jitter: the largest share of a delay by which the policy shortens it. With 0.8, a delay of
    /// 100 ms becomes one of 20 to 100 ms, uniformly distributed.
    ///
    /// The share is from 0 (no jitter: contenders that started together may collide again and again) to 1. A
    /// share below 0 counts as 0, and above 1 as 1. NaN changes nothing.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        if !share.is_nan() {
            self.jitter = share.clamp(0.0, 1.0);
        }
        self
    }

    /// Gives up after this number of attempts, including the first. There is always a first attempt: 0 counts
    /// as 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Gives up when this time has passed since the first attempt began.
    ///
    /// No attempt begins later. A delay that would end later is shortened, so that the last attempt begins at
    /// the end of this time and not up to one delay earlier.
    #[must_use]
    pub fn give_up_after(mut self, limit: Duration) -> Self {
        self.give_up_after = Some(limit);
        self
    }

    /// The delay before the next attempt; `None` to give up.
    ///
    /// `attempts_made` is the number of attempts so far, `elapsed` the time since the first attempt began,
    /// and `random` a uniformly distributed random number, a new one for every call.
    #[must_use]
    pub fn next(&self, attempts_made: u32, elapsed: Duration, random: u64) -> Option<Duration> {
        self.next_at_least(attempts_made, elapsed, random, Duration::ZERO)
    }

    /// As [`next`](Self::next), for a caller that knows that no attempt can succeed before `at_least` has
    /// passed, such as the rest of a quarantine.
    ///
    /// The policy's own delay is added, so that clients that wait for the same moment do not arrive together.
    /// If the policy would give up before that moment, it gives up now.
    #[must_use]
    pub fn next_at_least(
        &self,
        attempts_made: u32,
        elapsed: Duration,
        random: u64,
        at_least: Duration,
    ) -> Option<Duration> {
        let attempts_made = attempts_made.max(1);
        if self.max_attempts.is_some_and(|most| attempts_made >= most) {
            return None;
        }
        let step = self.schedule.step(RetryContext { attempts_made, elapsed, random })?;
        let delay = shorten(step, self.jitter, random).max(Self::SHORTEST_DELAY);
        let delay = delay.saturating_add(at_least);
        let Some(limit) = self.give_up_after else { return Some(delay) };
        let left = limit.saturating_sub(elapsed);
        (left >= at_least.max(Self::SHORTEST_DELAY)).then(|| delay.min(left))
    }
}

impl Retry {
    /// How long the policy goes on. A client can queue for this time instead of retrying.
    ///
    /// `None` if there is no second attempt, or if a function decides about each attempt.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        if matches!(self.schedule, RetrySchedule::Never | RetrySchedule::Custom(_))
            || self.max_attempts == Some(1)
        {
            return None;
        }
        let by_attempts = self.max_attempts.map(|most| self.schedule.delays(most.saturating_sub(1)));
        Some([by_attempts, self.give_up_after].into_iter().flatten().min().unwrap_or(Duration::MAX))
    }
}

impl RetrySchedule {
    /// The sum of the delays before this number of retries, without jitter.
    fn delays(&self, retries: u32) -> Duration {
        // After 64 doublings no delay grows any more.
        let growing = retries.min(64);
        let context = |attempts_made| RetryContext { attempts_made, elapsed: Duration::ZERO, random: 0 };
        let delay = |attempts_made| self.step(context(attempts_made)).unwrap_or_default();
        let sum = (1..=growing).map(delay).fold(Duration::ZERO, Duration::saturating_add);
        sum.saturating_add(delay(growing.max(1)).saturating_mul(retries - growing))
    }

    /// The delay before jitter and limits.
    fn step(&self, context: RetryContext) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Fixed(delay) => Some(*delay),
            Self::Exponential { first, cap } => Some(doubled(*first, context.attempts_made - 1).min(*cap)),
            Self::Custom(decide) => decide(context),
        }
    }
}

/// `delay` times two to the power of `times`, or [`Duration::MAX`] if that overflows.
fn doubled(delay: Duration, times: u32) -> Duration {
    // 64 bits shifted by at most 64 places fit into 128.
    let nanos = u128::from(nanos(delay)) << times.min(64);
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

/// Shortens a delay by a random part of a share of it. A delay longer than zero never becomes zero.
fn shorten(delay: Duration, share: f64, random: u64) -> Duration {
    if share == 0.0 {
        return delay;
    }
    // The share in billionths, so that the arithmetic is exact for every delay.
    let billionths = Duration::from_secs_f64(share).as_nanos();
    let spread = u128::from(nanos(delay)) * billionths / 1_000_000_000;
    let off = (spread * u128::from(random)) >> 64;
    delay.saturating_sub(u64::try_from(off).map_or(Duration::MAX, Duration::from_nanos))
}

/// A delay in nanoseconds, at most 584 years.
fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// Prints everything but the function of a custom policy.
impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("schedule", &self.schedule)
            .field("jitter", &self.jitter)
            .field("max_attempts", &self.max_attempts)
            .field("give_up_after", &self.give_up_after)
            .finish()
    }
}

impl fmt::Debug for RetrySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("Never"),
            Self::Fixed(delay) => f.debug_tuple("Fixed").field(delay).finish(),
            Self::Exponential { first, cap } => {
                f.debug_struct("Exponential").field("first", first).field("cap", cap).finish()
            }
            Self::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_lasts_for_all_attempts() {
        let ms = Duration::from_millis;
        assert_eq!(Retry::default().patience(), Some(Duration::from_secs(10)));
        assert_eq!(Retry::none().patience(), None);
        assert_eq!(Retry::fixed(ms(10)).max_attempts(1).patience(), None);
        assert_eq!(Retry::fixed(ms(10)).max_attempts(4).patience(), Some(ms(30)));
        assert_eq!(Retry::fixed(ms(10)).max_attempts(1001).patience(), Some(ms(10_000)));
        assert_eq!(Retry::fixed(ms(10)).max_attempts(9).give_up_after(ms(15)).patience(), Some(ms(15)));
        assert_eq!(Retry::exponential(ms(5), ms(20)).max_attempts(5).patience(), Some(ms(55)));
        assert_eq!(Retry::fixed(ms(10)).patience(), Some(Duration::MAX));
        assert_eq!(Retry::custom(|_| Some(Duration::ZERO)).patience(), None);
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;
    /// The random number for no jitter.
    const WHOLE: u64 = 0;
    /// The random number for the most jitter.
    const LEAST: u64 = u64::MAX;

    fn extremes() -> [Duration; 8] {
        let odd = Duration::new(u64::MAX / 3, 999_999_999);
        let nano = Duration::from_nanos(1);
        [
            Duration::ZERO,
            nano,
            MS(1),
            MS(250),
            Duration::from_secs(10),
            odd,
            Duration::MAX - nano,
            Duration::MAX,
        ]
    }

    fn policies() -> Vec<Retry> {
        let mut policies = vec![Retry::none(), Retry::default()];
        for a in extremes() {
            policies.push(Retry::fixed(a));
            policies.push(Retry::custom(move |_| Some(a)));
            policies.extend(extremes().map(|cap| Retry::exponential(a, cap)));
        }
        policies
    }

    #[test]
    fn delays_follow_the_form() {
        let exponential = Retry::exponential(MS(5), MS(250)).jitter(0.0);
        let fixed = Retry::fixed(MS(30)).jitter(0.0);
        let custom = Retry::custom(|context| (context.attempts_made < 3).then_some(MS(7)));
        let cases = [
            ("none", Retry::none(), 1, None),
            ("fixed, first", fixed.clone(), 1, Some(30)),
            ("fixed, last", fixed, u32::MAX, Some(30)),
            ("exponential, first", exponential.clone(), 1, Some(5)),
            ("exponential, second", exponential.clone(), 2, Some(10)),
            ("exponential, sixth", exponential.clone(), 6, Some(160)),
            ("exponential, capped", exponential.clone(), 7, Some(250)),
            ("exponential, shifted out", exponential.clone(), 65, Some(250)),
            ("exponential, shifted far out", exponential.clone(), 66, Some(250)),
            ("exponential, last", exponential.clone(), u32::MAX, Some(250)),
            ("a count of zero", exponential, 0, Some(5)),
            ("a cap below the first", Retry::exponential(MS(50), MS(20)).jitter(0.0), 1, Some(20)),
            ("custom goes on", custom.clone(), 2, Some(7)),
            ("custom gives up", custom, 3, None),
        ];
        for (name, retry, attempts_made, delay) in cases {
            assert_eq!(retry.next(attempts_made, Duration::ZERO, WHOLE), delay.map(MS), "{name}");
        }
    }

    #[test]
    fn a_custom_policy_gets_the_whole_context() {
        let expected = RetryContext { attempts_made: 4, elapsed: MS(20), random: 99 };
        let retry = Retry::custom(move |context| (context == expected).then_some(MS(1)));
        assert_eq!(retry.next(4, MS(20), 99), Some(MS(1)));
        assert_eq!(retry.next(4, MS(20), 98), None);
    }

    #[test]
    fn the_first_attempt_counts() {
        for (most, made, goes_on) in [
            (0, 1, false),
            (1, 1, false),
            (2, 1, true),
            (2, 2, false),
            (2, 3, false),
            (u32::MAX, u32::MAX, false),
        ] {
            let retry = Retry::fixed(MS(1)).max_attempts(most);
            assert_eq!(retry.next(made, Duration::ZERO, WHOLE).is_some(), goes_on, "{made} of {most}");
        }
    }

    #[test]
    fn the_last_attempt_is_made_when_the_time_is_up() {
        let retry = Retry::fixed(MS(100)).jitter(0.0).give_up_after(MS(1_000));
        for (elapsed, delay) in [
            (MS(0), Some(MS(100))),
            (MS(900), Some(MS(100))),
            (MS(901), Some(MS(99))),
            (MS(999), Some(MS(1))),
            (MS(1_000) - Retry::SHORTEST_DELAY / 2, None),
            (MS(1_000), None),
            (Duration::MAX, None),
        ] {
            assert_eq!(retry.next(1, elapsed, WHOLE), delay, "after {elapsed:?}");
        }
    }

    #[test]
    fn no_attempt_is_made_before_it_can_succeed() {
        let retry = Retry::fixed(MS(100)).jitter(0.0).give_up_after(MS(1_000));
        for (elapsed, at_least, delay) in [
            (0, 0, Some(100)),
            (0, 30, Some(130)),
            (0, 950, Some(1_000)),
            (0, 1_000, Some(1_000)),
            (0, 1_001, None),
            (600, 400, Some(400)),
            (600, 401, None),
        ] {
            let next = retry.next_at_least(1, MS(elapsed), WHOLE, MS(at_least));
            assert_eq!(next, delay.map(MS), "after {elapsed}, at least {at_least}");
        }
        assert_eq!(Retry::none().next_at_least(1, Duration::ZERO, WHOLE, MS(5)), None);
        assert_eq!(
            Retry::fixed(MS(5)).next_at_least(1, Duration::ZERO, WHOLE, Duration::MAX),
            Some(Duration::MAX)
        );
    }

    #[test]
    fn clients_that_wait_for_the_same_moment_arrive_apart() {
        let retry = Retry::default();
        let [early, late] =
            [LEAST, WHOLE].map(|random| retry.next_at_least(4, MS(0), random, MS(500)).unwrap());
        assert!(early > MS(500), "{early:?}");
        assert!(late - early > MS(30), "{early:?} and {late:?}");
    }

    #[test]
    fn jitter_shortens_by_at_most_its_share() {
        for (share, least) in [(0.0, 100.0), (0.25, 75.0), (0.8, 20.0), (1.0, 0.1), (7.0, 0.1), (-1.0, 100.0)]
        {
            let retry = Retry::fixed(MS(100)).jitter(share);
            assert_eq!(retry.next(1, MS(0), WHOLE), Some(MS(100)), "share {share}");
            let shortest = retry.next(1, MS(0), LEAST).unwrap().as_secs_f64() * 1_000.0;
            assert!((shortest - least).abs() < 0.001, "share {share}: {shortest} ms");
        }
        let unchanged = Retry::fixed(MS(100)).jitter(0.25).jitter(f64::NAN);
        assert_eq!(
            unchanged.next(1, MS(0), 1 << 63),
            Retry::fixed(MS(100)).jitter(0.25).next(1, MS(0), 1 << 63)
        );
    }

    #[test]
    fn jitter_is_even_over_its_span() {
        let retry = Retry::fixed(MS(100)).jitter(1.0);
        for tenth in 1..10_u32 {
            let delay = retry.next(1, MS(0), u64::MAX / 10 * u64::from(tenth)).unwrap().as_secs_f64();
            let even = 0.1 * (1.0 - f64::from(tenth) / 10.0);
            assert!((delay - even).abs() < 1e-6, "{tenth} tenths of the numbers: {delay}");
        }
    }

    #[test]
    fn the_default_jitter_keeps_contenders_apart() {
        // Sixteen clients that were refused at one moment, with evenly spread random numbers.
        for (name, retry, attempts_made) in [
            ("default", Retry::default(), 4),
            ("fixed", Retry::fixed(MS(50)), 1),
            ("capped", Retry::default(), 99),
        ] {
            let mut delays: Vec<_> = (0..16)
                .map(|who: u64| retry.next(attempts_made, MS(0), (who << 60) + (1 << 59)).unwrap())
                .collect();
            delays.sort();
            assert!(delays.windows(2).all(|pair| pair[1] - pair[0] > MS(1)), "{name}: {delays:?}");
        }
        // The control: without jitter they collide.
        let together = Retry::default().jitter(0.0);
        assert_eq!(together.next(4, MS(0), WHOLE), together.next(4, MS(0), LEAST));
    }

    #[test]
    fn no_extreme_overflows_and_no_delay_is_zero() {
        let numbers = [0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, u32::MAX - 1, u32::MAX];
        for policy in policies() {
            for (share, limit, at_least) in extremes().into_iter().flat_map(|limit| {
                extremes().into_iter().flat_map(move |at| [0.0, 0.3, 1.0].map(|share| (share, limit, at)))
            }) {
                let bounded = policy.clone().jitter(share).give_up_after(limit);
                for elapsed in extremes() {
                    for attempts_made in numbers {
                        for random in [WHOLE, 1, 1 << 63, LEAST] {
                            let Some(delay) = bounded.next_at_least(attempts_made, elapsed, random, at_least)
                            else {
                                continue;
                            };
                            assert!(
                                delay >= Retry::SHORTEST_DELAY && delay >= at_least,
                                "{bounded:?}: {delay:?}"
                            );
                            assert!(
                                elapsed.checked_add(delay).is_some_and(|end| end <= limit),
                                "{bounded:?}: {delay:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_default_starts_quickly_and_ends() {
        let retry = Retry::default();
        assert_eq!(retry.next(1, MS(0), WHOLE), Some(MS(5)));
        let mut elapsed = MS(0);
        let mut attempts_made = 1;
        while let Some(delay) = retry.next(attempts_made, elapsed, LEAST) {
            elapsed += delay;
            attempts_made += 1;
            assert!(attempts_made < 1_000, "no end after {elapsed:?}");
        }
        assert!(elapsed > Duration::from_secs(9) && elapsed <= Duration::from_secs(10), "{elapsed:?}");
    }

    #[test]
    fn printed_without_the_function() {
        assert_eq!(
            format!("{:?}", Retry::default()),
            "Retry { schedule: Exponential { first: 5ms, cap: 250ms }, jitter: 0.8, max_attempts: None, \
             give_up_after: Some(10s) }"
        );
        let custom = Retry::custom(|_| None).max_attempts(3);
        assert!(format!("{custom:?}").contains("schedule: Custom(..), jitter: 0.0, max_attempts: Some(3)"));
        assert!(format!("{:?}", Retry::none()).contains("Never"));
    }

    #[test]
    fn may_be_shared_between_tasks() {
        fn shareable<T: Clone + Send + Sync + 'static>() {}
        shareable::<Retry>();
    }
}
