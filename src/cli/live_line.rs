//! One line on a terminal that says how the service stands, below its log lines, while the terminal is
//! the service's.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use orrery::config::Config;
use orrery::control::{BACKFILL, BackfillReport, BackfillRequest, BackfillState, Client};
use orrery::observe::logs::{self, LogFormat};
use orrery::service::Node;
use orrery::steady::unix_now;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Time between two changes of the line.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of intervals over which events are counted.
const COUNTED: usize = 10;

/// The line, which is removed when this is dropped.
pub struct LiveLine {
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveLine {
    /// Begins to show the line of a service; shows none where log lines are for machines, and where
    /// standard error is no terminal. A service in the background shows it when it is brought to the
    /// foreground.
    pub fn begin(node: &Arc<Node>, config: &Config) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if config.log.format == LogFormat::Json || is_dumb || !std::io::stderr().is_terminal() {
            return None;
        }
        let (stop, stopped) = channel();
        let node = Arc::clone(node);
        let shown = thread::Builder::new().name("live-line".to_owned());
        let thread = shown.spawn(move || show(&node, &stopped)).ok();
        Some(Self { stop: Some(stop), thread })
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Whether what is typed on the terminal is for this process. Otherwise the line would be written over
/// what somebody types for another one.
fn is_in_foreground() -> bool {
    tcgetpgrp(std::io::stderr()).is_ok_and(|group| group == getpgrp())
}

fn show(node: &Node, stopped: &Receiver<()>) {
    let mut counted = VecDeque::new();
    loop {
        if is_in_foreground() {
            logs::show_live_line(Some(&standing(node, &mut counted).line()));
        } else {
            logs::forget_live_line();
            counted.clear();
        }
        // Parking would end early: requests to the control socket unpark the thread that makes them.
        if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    if is_in_foreground() {
        logs::show_live_line(None);
    }
}

/// Returns how the service stands, and counts its events.
fn standing(node: &Node, counted: &mut VecDeque<(Instant, u64)>) -> Standing {
    let ends = node.store().ends();
    counted.push_back((Instant::now(), ends.last_event_id.0));
    if counted.len() > COUNTED {
        counted.pop_front();
    }
    Standing {
        ledger: ends.latest.map(|ledger| ledger.0),
        seconds_old: ends.latest_close_time.map(|closed| unix_now().saturating_sub(closed)),
        behind: node
            .health()
            .network_latest()
            .zip(ends.latest)
            .map(|(network, own)| network.0.saturating_sub(own.0)),
        events_per_second: rate(counted),
        backfill: backfill(node),
    }
}

/// Returns the events per second over the times that were counted.
fn rate(counted: &VecDeque<(Instant, u64)>) -> f64 {
    let (Some((from, first)), Some((to, last))) = (counted.front(), counted.back()) else {
        return 0.0;
    };
    let seconds = to.duration_since(*from).as_secs_f64();
    if seconds > 0.0 { last.saturating_sub(*first) as f64 / seconds } else { 0.0 }
}

/// Asks this process itself for its backfill, as other commands do.
fn backfill(node: &Node) -> Option<BackfillReport> {
    let mut client = Client::connect(node.store().directory()).ok()??;
    let report = client.ask(BACKFILL, &BackfillRequest::Status).ok()?;
    (report.state == BackfillState::Running).then_some(report)
}

/// What the line says.
#[derive(Default)]
struct Standing {
    ledger: Option<u32>,
    /// Seconds since the newest ledger closed.
    seconds_old: Option<u64>,
    /// Ledgers by which the network is ahead, if that is known.
    behind: Option<u32>,
    events_per_second: f64,
    backfill: Option<BackfillReport>,
}

impl Standing {
    fn line(&self) -> String {
        let Some(ledger) = self.ledger else { return "no ledger is stored yet".to_owned() };
        let mut line = format!("ledger {ledger}");
        match (self.behind, self.seconds_old) {
            (Some(behind), _) if behind > 1 => line += &format!(", {behind} behind the network"),
            (_, Some(old)) => line += &format!(", closed {} ago", duration(old)),
            _ => {}
        }
        line += &format!("  |  {:.0} events/s", self.events_per_second);
        if let Some(backfill) = &self.backfill {
            line += &format!("  |  backfill {} %", backfill.percent());
            if let Some(left) = backfill.seconds_left {
                line += &format!(", {} left", duration(left));
            }
        }
        line
    }
}

/// Writes a duration with its two largest units.
fn duration(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let at = units.iter().position(|(_, size)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut left = seconds;
    let parts = units[at..].iter().take(2).map(|(name, size)| {
        let count = left / size;
        left %= size;
        (count, name)
    });
    let parts: Vec<_> = parts.collect();
    let shown = parts.iter().enumerate().filter(|(index, (count, _))| *index == 0 || *count > 0);
    shown.map(|(_, (count, name))| format!("{count} {name}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_the_service_stands() {
        let standing = Standing::default();
        assert_eq!(standing.line(), "no ledger is stored yet");
        let standing = Standing { ledger: Some(7), seconds_old: Some(3), ..standing };
        assert_eq!(standing.line(), "ledger 7, closed 3 s ago  |  0 events/s");
        let backfill = BackfillReport {
            state: BackfillState::Running,
            missing: 200,
            stored: 50,
            seconds_left: Some(8_100),
            ..BackfillReport::default()
        };
        let standing = Standing {
            behind: Some(40),
            events_per_second: 812.4,
            backfill: Some(backfill),
            ..standing
        };
        let expected =
            "ledger 7, 40 behind the network  |  812 events/s  |  backfill 25 %, 2 h 15 min left";
        assert_eq!(standing.line(), expected);
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_600, "1 h"),
            (90_061, "1 d 1 h"),
            (86_400, "1 d"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
