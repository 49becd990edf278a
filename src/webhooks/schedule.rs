//! Decides when a delivery is retried, and when it is given up. Pure: time and randomness are
//! parameters.

use std::time::Duration;

/// Waits after the first attempt, the second, and so on. A delivery is dead when the attempt after
/// the last wait fails.
pub const RETRY_DELAYS: [Duration; 10] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(10 * 60),
    hours(1),
    hours(3),
    hours(6),
    hours(12),
    hours(24),
    hours(24),
];

/// How many of the first [`RETRY_DELAYS`] are exempt from the pause of a server that does not answer. Only
/// jitter and the endpoint's `Retry-After` lengthen them.
pub const PROMPT_RETRIES: usize = 2;

/// Maximum part of a wait by which it is lengthened at random, so that deliveries that failed
/// together are not retried together.
pub const JITTER: f64 = 0.2;

/// The longest wait that an endpoint may ask for.
pub const MAX_RETRY_AFTER: Duration = hours(24);

/// How long a subscription may go on failing without a success before it is disabled.
pub const MAX_FAILING_TIME: Duration = hours(5 * 24);

/// How many messages may wait for one chat. Of more, the oldest are given up: nobody reads them.
pub const MOST_IN_CHAT: u64 = 1000;

/// The wait after an answer of a chat that it takes too much (429), if it says none.
pub const DEFAULT_CHAT_PAUSE: Duration = Duration::from_secs(30);

/// Days for which dead deliveries are kept.
pub const DEAD_DAYS: u16 = 30;

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

/// Returns the wait after attempt number `attempt` (from 1), which failed; `None` after the last.
/// `random` is a random number from 0 to 1. The wait that the endpoint asks for (`Retry-After`) is
/// honoured up to [`MAX_RETRY_AFTER`], but never shortens the wait.
pub fn retry_delay(attempt: u32, random: f64, retry_after: Option<Duration>) -> Option<Duration> {
    let number = usize::try_from(attempt).ok()?.checked_sub(1)?;
    let wait = RETRY_DELAYS.get(number)?.mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0));
    Some(retry_after.map_or(wait, |asked| wait.max(asked.min(MAX_RETRY_AFTER))))
}

/// Whether a delivery that is due at `due` is sent now; both are UNIX times in milliseconds. No delivery
/// waits longer than the longest of the waits: it seems so when the clock was wrong before.
pub fn is_due(due: u64, now: u64) -> bool {
    let longest = MAX_RETRY_AFTER.mul_f64(1.0 + JITTER);
    due <= now || u128::from(due - now) > longest.as_millis()
}

/// Whether the wait after attempt number `attempt` is one of the first [`PROMPT_RETRIES`].
pub fn is_prompt(attempt: u32) -> bool {
    (1..=PROMPT_RETRIES as u32).contains(&attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_are_as_documented() {
        let seconds: Vec<_> = (1..=11)
            .map(|attempt| retry_delay(attempt, 0.0, None).map(|it| it.as_secs()))
            .collect();
        let promised =
            [5, 30, 120, 600, 3600, 10_800, 21_600, 43_200, 86_400, 86_400].map(Some).into_iter();
        assert!(seconds.into_iter().eq(promised.chain([None])));
        assert_eq!(retry_delay(0, 0.0, None), None);
        let all: Duration = RETRY_DELAYS.iter().sum();
        assert_eq!(all.as_secs(), 252_755);
    }

    #[test]
    fn nothing_is_due_later_than_the_longest_wait() {
        const HOUR: u64 = 3_600_000;
        let now = 500_000 * HOUR;
        for (due, expected) in [
            (0, true),
            (now, true),
            (now + 1, false),
            (now + 28 * HOUR, false),
            (now + 29 * HOUR, true),
            (u64::MAX, true),
        ] {
            assert_eq!(is_due(due, now), expected, "{due}");
        }
    }

    #[test]
    fn jitter_extends_delays_by_at_most_a_fifth() {
        for attempt in 1..=10 {
            let plain = retry_delay(attempt, 0.0, None).unwrap();
            for (random, part) in [(0.5, 1.1), (1.0, 1.2), (7.0, 1.2), (-1.0, 1.0)] {
                let wait = retry_delay(attempt, random, None).unwrap();
                assert!((wait.as_secs_f64() - plain.as_secs_f64() * part).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn retry_after_extends_delays_up_to_a_day_and_never_shortens_them() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(retry_delay(1, 0.0, asked(0)).unwrap().as_secs(), 5);
        assert_eq!(retry_delay(1, 1.0, asked(5)).unwrap().as_secs(), 6);
        assert_eq!(retry_delay(1, 0.0, asked(77)).unwrap().as_secs(), 77);
        assert_eq!(retry_delay(2, 0.0, asked(1 << 40)).unwrap().as_secs(), 86_400);
        assert_eq!(retry_delay(9, 1.0, asked(1 << 40)).unwrap().as_secs(), 103_680);
        assert_eq!(retry_delay(11, 0.0, asked(77)), None);
        assert!(is_prompt(1) && is_prompt(2) && !is_prompt(3) && !is_prompt(0));
    }
}
