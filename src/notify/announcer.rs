//! Decides when something is worth saying: a state must hold for a minute, and there is never more than
//! one message a minute.

use std::time::Duration;

use tokio::time::Instant;

/// How long a state must hold before it is announced.
const HOLD: Duration = Duration::from_secs(60);
/// Between two messages.
const APART: Duration = Duration::from_secs(60);
/// Ledgers behind the network from which ingestion counts as behind, and to which it has caught up.
const BEHIND: u32 = 24;
const CAUGHT_UP: u32 = 4;
/// The same for the age of the newest ledger, in seconds, on networks that close ledgers all the time.
const OLD: u64 = 300;
const FRESH: u64 = 120;
/// Characters of a reason; the shortest limit of the services is 2,000 for a message.
const LONGEST_REASON: usize = 600;

/// What can be seen of the service at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// When, in UNIX seconds.
    pub time: u64,
    /// Name of the network.
    pub network: String,
    /// The first component that is down and why, in one sentence.
    pub down: Option<String>,
    /// How far ingestion is, when a network is followed.
    pub lag: Option<Lag>,
}

/// How far ingestion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Newest stored ledger.
    pub ledger: u32,
    /// Newest ledger of the network.
    pub network_latest: u32,
    /// Age of the newest stored ledger in seconds, on networks that close ledgers all the time.
    pub seconds: Option<u64>,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What has come about.
    pub kind: Kind,
    /// Name of the network.
    pub network: String,
    /// For people.
    pub text: String,
    /// When it was found, in UNIX seconds.
    pub time: u64,
    /// Why, when the service is down.
    pub reason: Option<String>,
    /// How far ingestion is.
    pub lag: Option<Lag>,
}

/// What has come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A component does not work.
    Down,
    /// All components work.
    Up,
    /// The network is ahead.
    Behind,
    /// The network is no longer ahead.
    CaughtUp,
}

impl Kind {
    /// One word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Behind => "behind",
            Self::CaughtUp => "caught_up",
        }
    }
}

/// Something that is or is not so, how long already, and what was said of it.
#[derive(Debug, Default)]
struct State {
    is: bool,
    since: Option<Instant>,
    said: Option<bool>,
}

impl State {
    fn is(&mut self, now: Instant, is: bool) {
        if self.since.is_none() || self.is != is {
            (self.is, self.since) = (is, Some(now));
        }
    }

    /// Whether it has held long enough and was not said.
    fn is_due(&self, now: Instant) -> bool {
        self.said != Some(self.is) && self.since.is_some_and(|since| now - since >= HOLD)
    }
}

/// Remembers what was seen and said.
#[derive(Debug, Default)]
pub struct Announcer {
    down: State,
    behind: State,
    last: Option<Instant>,
}

impl Announcer {
    /// Takes note of what is seen `now`, and yields a message when one is due.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Option<Message> {
        self.down.is(now, seen.down.is_some());
        let behind = seen.lag.map_or(self.behind.is, |lag| is_behind(lag, self.behind.is));
        self.behind.is(now, behind);
        // At the start nobody needs to hear that all is as it should be.
        self.behind.said.get_or_insert(false);
        if self.last.is_some_and(|last| now - last < APART) {
            return None;
        }
        let (state, kind) = if self.down.is_due(now) {
            (&mut self.down, if seen.down.is_some() { Kind::Down } else { Kind::Up })
        } else if self.behind.is_due(now) {
            (&mut self.behind, if behind { Kind::Behind } else { Kind::CaughtUp })
        } else {
            return None;
        };
        state.said = Some(state.is);
        self.last = Some(now);
        Some(message(kind, seen))
    }
}

/// Between the two limits it stays as it was.
fn is_behind(lag: Lag, was: bool) -> bool {
    let ledgers = lag.network_latest.saturating_sub(lag.ledger);
    let seconds = lag.seconds.unwrap_or(0);
    if was { ledgers > CAUGHT_UP || seconds > FRESH } else { ledgers >= BEHIND || seconds >= OLD }
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

    /// Shows one observation a second, and returns what was said with the second.
    fn said(timeline: impl IntoIterator<Item = (u64, Observation)>) -> Vec<(u64, Kind, String)> {
        let (mut announcer, start) = (Announcer::default(), Instant::now());
        let mut said = Vec::new();
        let mut second = 0;
        for (until, observation) in timeline {
            while second < until {
                let now = start + Duration::from_secs(second);
                if let Some(message) = announcer.observe(now, &observation) {
                    said.push((second, message.kind, message.text));
                }
                second += 1;
            }
        }
        said
    }

    #[test]
    fn a_state_must_hold_for_a_minute() {
        let said = said([
            (100, seen(None, 0)),
            (159, seen(Some("source: the provider fails"), 0)),
            (200, seen(None, 0)),
            (300, seen(Some("source: the provider fails"), 0)),
            (400, seen(None, 0)),
        ]);
        let said: Vec<_> =
            said.iter().map(|(at, kind, text)| (*at, *kind, text.as_str())).collect();
        assert_eq!(
            said,
            [
                (60, Kind::Up, "Orrery (testnet) is up: ledger 1000 of 1000, 0 behind"),
                (260, Kind::Down, "Orrery (testnet) is down: source: the provider fails"),
                (360, Kind::Up, "Orrery (testnet) is up: ledger 1000 of 1000, 0 behind"),
            ]
        );
    }

    #[test]
    fn behind_and_caught_up_have_room_between_them() {
        let said = said([
            (100, seen(None, 23)),
            (200, seen(None, 24)),
            (300, seen(None, 5)),
            (400, seen(None, 4)),
            (800, seen(None, 23)),
        ]);
        let said: Vec<_> =
            said.iter().map(|(at, kind, text)| (*at, *kind, text.as_str())).collect();
        assert_eq!(
            said[1..],
            [
                (160, Kind::Behind, "Orrery (testnet) is behind: ledger 976 of 1000, 24 behind"),
                (360, Kind::CaughtUp, "Orrery (testnet) has caught up at ledger 996"),
            ]
        );
    }

    #[test]
    fn an_old_ledger_is_behind_although_the_source_says_nothing_newer() {
        let old = |seconds| Observation {
            lag: Some(Lag { ledger: 1000, network_latest: 1000, seconds: Some(seconds) }),
            ..seen(None, 0)
        };
        let kinds: Vec<Kind> =
            said([(100, old(299)), (300, old(300)), (400, old(121)), (600, old(120))])
                .into_iter()
                .map(|(_, kind, _)| kind)
                .collect();
        assert_eq!(kinds, [Kind::Up, Kind::Behind, Kind::CaughtUp]);
    }

    #[test]
    fn there_is_never_more_than_one_message_a_minute() {
        // Everything turns bad at once, and then good at once.
        let said = said([
            (100, seen(None, 0)),
            (300, seen(Some("store: the disk is full"), 500)),
            (600, seen(None, 0)),
        ]);
        let times: Vec<_> = said.iter().map(|(at, kind, _)| (*at, *kind)).collect();
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
        let said = self::said(storm);
        assert!(said.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 60));
        assert!(said.len() > 1000);
    }

    #[test]
    fn a_long_reason_is_cut() {
        let said = said([(61, seen(Some(&"é".repeat(5000)), 0))]);
        assert!(said[0].2.chars().count() < 700, "{}", said[0].2.len());
        assert!(said[0].2.ends_with('…'));
    }
}
