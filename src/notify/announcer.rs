//! Decides when a status message is due: a state must have held for a minute, and there is at most
//! one message per minute.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which a state must hold before it is announced.
const MIN_STATE_DURATION: Duration = Duration::from_secs(60);
/// Minimum time between two messages.
const MIN_MESSAGE_INTERVAL: Duration = Duration::from_secs(60);
/// Lag in ledgers from which on ingestion counts as behind, and down to which it has to fall to
/// count as caught up.
const BEHIND: u32 = 24;
const CAUGHT_UP: u32 = 4;
/// The same limits for the age of the newest ledger in seconds, on networks that close ledgers all
/// the time.
const OLD: u64 = 300;
const FRESH: u64 = 120;
/// Maximum number of characters of a reason. The lowest limit of the chat services is 2,000
/// characters for a message.
const LONGEST_REASON: usize = 600;

/// State of the service at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// UNIX time in seconds of the observation.
    pub time: u64,
    /// Name of the network.
    pub network: String,
    /// The first component that is down and the reason, in one sentence; `None` when all work.
    pub down: Option<String>,
    /// Lag of ingestion, when a network is followed.
    pub lag: Option<Lag>,
}

/// Lag of ingestion behind the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Newest stored ledger.
    pub ledger: u32,
    /// Newest ledger of the network.
    pub network_latest: u32,
    /// Age of the newest stored ledger in seconds, on networks that close ledgers all the time.
    pub seconds: Option<u64>,
}

/// A status message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Change of state that the message reports.
    pub kind: Kind,
    /// Name of the network.
    pub network: String,
    /// Text for people.
    pub text: String,
    /// UNIX time in seconds of the observation that the message reports.
    pub time: u64,
    /// Reason, when the service is down.
    pub reason: Option<String>,
    /// Lag of ingestion, when a network is followed.
    pub lag: Option<Lag>,
}

/// Change of state that a message reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A component does not work.
    Down,
    /// All components work.
    Up,
    /// Ingestion is behind the network.
    Behind,
    /// Ingestion has caught up with the network.
    CaughtUp,
}

impl Kind {
    /// Returns an identifier for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Behind => "behind",
            Self::CaughtUp => "caught_up",
        }
    }
}

/// A condition, since when it has its current value, and the value that was last announced.
#[derive(Debug, Default)]
struct State {
    value: bool,
    since: Option<Instant>,
    announced: Option<bool>,
}

impl State {
    fn set(&mut self, now: Instant, value: bool) {
        if self.since.is_none() || self.value != value {
            (self.value, self.since) = (value, Some(now));
        }
    }

    /// Returns whether the value has held for [`MIN_STATE_DURATION`] and differs from the one last
    /// announced.
    fn is_due(&self, now: Instant) -> bool {
        self.announced != Some(self.value)
            && self.since.is_some_and(|since| now - since >= MIN_STATE_DURATION)
    }
}

/// Keeps the observed and announced states.
#[derive(Debug, Default)]
pub struct Announcer {
    down: State,
    behind: State,
    last: Option<Instant>,
}

impl Announcer {
    /// Records an observation made at `now`, and returns a message when one is due.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Option<Message> {
        self.down.set(now, seen.down.is_some());
        let behind = seen.lag.map_or(self.behind.value, |lag| is_behind(lag, self.behind.value));
        self.behind.set(now, behind);
        // That ingestion is not behind is not announced at the start.
        self.behind.announced.get_or_insert(false);
        if self.last.is_some_and(|last| now - last < MIN_MESSAGE_INTERVAL) {
            return None;
        }
        let (state, kind) = if self.down.is_due(now) {
            (&mut self.down, if seen.down.is_some() { Kind::Down } else { Kind::Up })
        } else if self.behind.is_due(now) {
            (&mut self.behind, if behind { Kind::Behind } else { Kind::CaughtUp })
        } else {
            return None;
        };
        state.announced = Some(state.value);
        self.last = Some(now);
        Some(message(kind, seen))
    }
}

/// Returns whether ingestion is behind. Between the two limits the answer stays as it was.
fn is_behind(lag: Lag, was_behind: bool) -> bool {
    let ledgers = lag.network_latest.saturating_sub(lag.ledger);
    let seconds = lag.seconds.unwrap_or(0);
    if was_behind {
        ledgers > CAUGHT_UP || seconds > FRESH
    } else {
        ledgers >= BEHIND || seconds >= OLD
    }
}

fn message(kind: Kind, seen: &Observation) -> Message {
    let reason = seen.down.as_deref().filter(|_| kind == Kind::Down).map(shortened);
    let network = seen.network.clone();
    let how_far = seen.lag.map(|lag| {
        let ledgers = lag.network_latest.saturating_sub(lag.ledger);
        format!("ledger {} of {}, {ledgers} behind", lag.ledger, lag.network_latest)
    });
    let how_far = how_far.unwrap_or_default();
    let text = match (kind, &reason, seen.lag) {
        (Kind::Down, Some(reason), _) => format!("Orrery ({network}) is down: {reason}"),
        (Kind::Down, None, _) => format!("Orrery ({network}) is down"),
        (Kind::Up, _, None) => format!("Orrery ({network}) is up"),
        (Kind::Up, _, Some(_)) => format!("Orrery ({network}) is up: {how_far}"),
        (Kind::Behind, ..) => format!("Orrery ({network}) is behind: {how_far}"),
        (Kind::CaughtUp, _, lag) => {
            let at = lag.map(|lag| format!(" at ledger {}", lag.ledger)).unwrap_or_default();
            format!("Orrery ({network}) has caught up{at}")
        }
    };
    Message { kind, network, text, time: seen.time, reason, lag: seen.lag }
}

fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(down: Option<&str>, behind: u32) -> Observation {
        Observation {
            time: 0,
            network: "testnet".to_owned(),
            down: down.map(str::to_owned),
            lag: Some(Lag { ledger: 1000 - behind, network_latest: 1000, seconds: Some(5) }),
        }
    }

    /// Makes one observation per second, and returns the messages, each with its second.
    fn messages(
        timeline: impl IntoIterator<Item = (u64, Observation)>,
    ) -> Vec<(u64, Kind, String)> {
        let (mut announcer, start) = (Announcer::default(), Instant::now());
        let mut messages = Vec::new();
        let mut second = 0;
        for (until, observation) in timeline {
            while second < until {
                let now = start + Duration::from_secs(second);
                if let Some(message) = announcer.observe(now, &observation) {
                    messages.push((second, message.kind, message.text));
                }
                second += 1;
            }
        }
        messages
    }

    #[test]
    fn a_state_must_hold_for_a_minute() {
        let messages = messages([
            (100, seen(None, 0)),
            (159, seen(Some("source: the provider fails"), 0)),
            (200, seen(None, 0)),
            (300, seen(Some("source: the provider fails"), 0)),
            (400, seen(None, 0)),
        ]);
        let messages: Vec<_> =
            messages.iter().map(|(at, kind, text)| (*at, *kind, text.as_str())).collect();
        assert_eq!(
            messages,
            [
                (60, Kind::Up, "Orrery (testnet) is up: ledger 1000 of 1000, 0 behind"),
                (260, Kind::Down, "Orrery (testnet) is down: source: the provider fails"),
                (360, Kind::Up, "Orrery (testnet) is up: ledger 1000 of 1000, 0 behind"),
            ]
        );
    }

    #[test]
    fn behind_and_caught_up_have_a_hysteresis() {
        let messages = messages([
            (100, seen(None, 23)),
            (200, seen(None, 24)),
            (300, seen(None, 5)),
            (400, seen(None, 4)),
            (800, seen(None, 23)),
        ]);
        let messages: Vec<_> =
            messages.iter().map(|(at, kind, text)| (*at, *kind, text.as_str())).collect();
        assert_eq!(
            messages[1..],
            [
                (160, Kind::Behind, "Orrery (testnet) is behind: ledger 976 of 1000, 24 behind"),
                (360, Kind::CaughtUp, "Orrery (testnet) has caught up at ledger 996"),
            ]
        );
    }

    #[test]
    fn an_old_ledger_is_behind_even_if_the_source_has_nothing_newer() {
        let old = |seconds| Observation {
            lag: Some(Lag { ledger: 1000, network_latest: 1000, seconds: Some(seconds) }),
            ..seen(None, 0)
        };
        let kinds: Vec<Kind> =
            messages([(100, old(299)), (300, old(300)), (400, old(121)), (600, old(120))])
                .into_iter()
                .map(|(_, kind, _)| kind)
                .collect();
        assert_eq!(kinds, [Kind::Up, Kind::Behind, Kind::CaughtUp]);
    }

    #[test]
    fn at_most_one_message_is_sent_per_minute() {
        // Everything turns bad at once, and later good at once.
        let messages = messages([
            (100, seen(None, 0)),
            (300, seen(Some("store: the disk is full"), 500)),
            (600, seen(None, 0)),
        ]);
        let times: Vec<_> = messages.iter().map(|(at, kind, _)| (*at, *kind)).collect();
        assert_eq!(
            times,
            [
                (60, Kind::Up),
                (160, Kind::Down),
                (220, Kind::Behind),
                (360, Kind::Up),
                (420, Kind::CaughtUp)
            ]
        );
        // A storm: something changes every 61 seconds for a day.
        let storm = (0..1416).map(|i| {
            let bad = i % 2 == 0;
            ((i + 1) * 61, seen(bad.then_some("source: it fails"), if bad { 100 } else { 0 }))
        });
        let messages = self::messages(storm);
        assert!(messages.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 60));
        assert!(messages.len() > 1000);
    }

    #[test]
    fn long_reasons_are_truncated() {
        let messages = messages([(61, seen(Some(&"é".repeat(5000)), 0))]);
        assert!(messages[0].2.chars().count() < 700, "{}", messages[0].2.len());
        assert!(messages[0].2.ends_with('…'));
    }
}
