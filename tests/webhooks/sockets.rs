//! Receivers with every kind of fault, over real connections: outcomes of attempts come from the
//! wire, and a clock that the test moves through 110 hours decides when attempts are made. Every
//! attempt is made exactly at the promised time.
//!
//! Small: receivers that hang or drip have 300 milliseconds to respond; full: the default of 15
//! seconds.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orrery::webhooks::message::format::Format;
use orrery::webhooks::rows::{Delivery, State};
use orrery::webhooks::target::{Lookup, Policy, Sender, Timeouts, system_lookup};
use parking_lot::Mutex;

use super::hostile::{Hostile, certificates, drip, flood, hold, speaking_tls, tls};
use super::receiver::{Receiver, answer, read};
use super::schedule::{HOUR, RETRY_DELAYS, Scene};
use super::world::BEGINNING;
use orrery_testkit::size;

/// Set in the child process, which trusts the authority of the test's certificates.
const INSIDE: &str = "ORRERY_TEST_WEBHOOKS_TLS_INSIDE";
const TLS_TEST: &str = "sockets::deliveries_require_a_valid_server_certificate";

/// Outcome that is recorded for every attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Status(u16),
    /// No response, with an error that contains these words.
    Fails(&'static str),
}

/// A receiver's behaviour, and the expected outcome.
struct Case<'a> {
    name: &'a str,
    endpoint: String,
    outcome: Outcome,
    /// Seconds in the receiver's `Retry-After`; 0 without one.
    asks: u64,
    timeouts: Timeouts,
}

impl<'a> Case<'a> {
    fn new(name: &'a str, endpoint: impl Into<String>, outcome: Outcome) -> Self {
        // Enough for a busy machine: most receivers answer at once or never.
        let timeouts = Timeouts { body: Duration::from_millis(200), ..Timeouts::default() };
        Self { name, endpoint: endpoint.into(), outcome, asks: 0, timeouts }
    }

    fn of(name: &'a str, receiver: &Hostile, outcome: Outcome) -> Self {
        Self::new(name, format!("http://{}/hook", receiver.address), outcome)
    }

    /// Shortens the timeout for the response's head in small runs.
    fn impatient(self) -> Self {
        let head = Duration::from_millis(size::choose(300, 15_000));
        Self { timeouts: Timeouts { head, ..self.timeouts }, ..self }
    }

    /// Returns the expected times of attempts: the whole schedule, or the first attempt alone.
    fn times(&self) -> Vec<u64> {
        let mut at = BEGINNING;
        let waits = RETRY_DELAYS.iter().map(|wait| {
            at += 1000 * wait.max(&self.asks);
            at
        });
        let all = [BEGINNING].into_iter().chain(waits);
        match self.outcome {
            Outcome::Status(200..=299 | 410) => vec![BEGINNING],
            _ => all.collect(),
        }
    }

    /// Makes one delivery, compares its attempts with the expectation, and returns its record.
    fn run(&self) -> Delivery {
        let policy = Policy { allowed: vec!["127.0.0.1/32".parse().unwrap()] };
        let sender = Sender::new(policy, names(), self.timeouts);
        let mut scene = Scene::sending(sender);
        let id = scene.subscribe(&self.endpoint);
        scene.ledger_with_one_event(id);
        scene.world.deliver_over_sockets(0);
        let end = BEGINNING + 110 * HOUR;
        scene.world.run_until(end);
        let name = self.name;
        let times = self.times();
        assert_eq!(scene.attempts(&scene.id(id, 0)), times, "{name}");
        let (_, delivery) = scene.world.deliveries("ana", id).remove(0);
        assert_eq!(delivery.attempts.len(), times.len(), "{name}: {delivery:?}");
        for (attempt, at) in delivery.attempts.iter().zip(times) {
            assert_eq!(attempt.at, at, "{name}");
            match (self.outcome, &attempt.error) {
                (Outcome::Status(status), None) => {
                    assert_eq!(attempt.status, Some(status), "{name}");
                }
                (Outcome::Fails(words), Some(error)) => {
                    assert!(attempt.status.is_none() && error.contains(words), "{name}: {error}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        let subscription = scene.world.registry.get(id).unwrap();
        let succeeds = matches!(self.outcome, Outcome::Status(200..=299));
        let wanted = if succeeds { State::Delivered } else { State::Dead };
        assert_eq!(delivery.state, wanted, "{name}");
        assert_eq!(subscription.is_enabled(), self.outcome != Outcome::Status(410), "{name}");
        assert_eq!(subscription.waiting(), 0, "{name}");
        delivery
    }
}

/// Resolves the test's names to this machine, and no others.
fn names() -> Lookup {
    Arc::new(|name| {
        let known = ["receiver.test", "other.test"].contains(&name.as_str());
        Box::pin(async move {
            let unknown = || std::io::Error::other("no such name");
            known.then_some(vec![IpAddr::from([127, 0, 0, 1])]).ok_or_else(unknown)
        })
    })
}

/// Pause between two bytes: a second, or less where the timeout is shorter.
fn pace() -> Duration {
    Duration::from_millis(size::choose(20, 1000))
}

#[test]
fn hanging_receivers_time_out_and_are_retried_on_schedule() {
    let silent = Hostile::start(hold);
    let after_the_request = Hostile::start(|mut stream| {
        read(&mut stream, &mut Vec::new());
        hold(stream);
    });
    // Reads nothing: the request stays in the buffers.
    let held = Mutex::new(Vec::new());
    let unread = Hostile::start(move |stream| held.lock().push(stream));
    let dripping = Hostile::start(|mut stream| {
        read(&mut stream, &mut Vec::new());
        drip(stream, b"HTTP/1.1 200 OK\r\nx-y: ", b'z', pace());
    });
    let never = Outcome::Fails("no answer within");
    std::thread::scope(|scope| {
        for (name, receiver) in [
            ("silent", &silent),
            ("silent after the request", &after_the_request),
            ("does not read", &unread),
            ("drips its head", &dripping),
        ] {
            scope.spawn(move || {
                Case::of(name, receiver, never).impatient().run();
                // A connection without a response is not used again.
                assert_eq!(receiver.count(), RETRY_DELAYS.len() + 1, "{name}");
            });
        }
    });
}

#[test]
fn the_response_head_decides_success_whatever_the_body_does() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
    let dripping = |status: u16| {
        Hostile::start(move |mut stream| {
            read(&mut stream, &mut Vec::new());
            let head = HEAD.replace("200", &status.to_string());
            stream.write_all(head.as_bytes()).unwrap();
            drip(stream, b"slowly", b'.', pace());
        })
    };
    let flooded = Arc::<AtomicUsize>::default();
    let flooding = |status: u16| {
        let flooded = Arc::clone(&flooded);
        Hostile::start(move |mut stream| {
            read(&mut stream, &mut Vec::new());
            let head = format!("HTTP/1.1 {status} X\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            flooded.fetch_max(flood(stream, &[b'w'; 64 << 10]), Ordering::SeqCst);
        })
    };
    let cut_off = Hostile::answering(HEAD);
    for status in [200, 500] {
        let (dripping, flooding) = (dripping(status), flooding(status));
        let slow = Case::of("drips its body", &dripping, Outcome::Status(status)).run();
        assert!("slowly".starts_with(slow.attempts[0].excerpt.trim_end_matches('.')));
        let huge = Case::of("a body without an end", &flooding, Outcome::Status(status)).run();
        assert!(huge.attempts.iter().all(|it| it.excerpt.chars().count() <= 201), "{huge:?}");
        assert!(huge.attempts[0].excerpt.starts_with(&"w".repeat(199)), "{huge:?}");
    }
    Case::of("a body that is cut off", &cut_off, Outcome::Status(200)).run();
    // Bounded by the system's buffers, because the sender stops reading.
    let flooded = flooded.load(Ordering::SeqCst);
    assert!((1..32 << 20).contains(&flooded), "{flooded} bytes of a body were taken");
}

#[test]
fn receivers_that_break_connections_are_retried_on_schedule() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Closing a connection with unread bytes resets it (RFC 9293, section 3.6.1; RFC 2525, 2.17).
    let reset = Hostile::start(|stream| {
        let _ = stream.peek(&mut [0]);
    });
    let reset_half_way = Hostile::start(|mut stream| {
        let _ = stream.read_exact(&mut [0; 100]);
    });
    let closes = Hostile::start(|mut stream| {
        read(&mut stream, &mut Vec::new());
    });
    let half_a_head = Hostile::answering("HTTP/1.1 200 OK\r\nx-y");
    let no_http = Hostile::answering("SSH-2.0-OpenSSH_9.2p1\r\n");
    let endless_head = Hostile::start(|mut stream| {
        read(&mut stream, &mut Vec::new());
        if stream.write_all(b"HTTP/1.1 200 OK\r\n").is_ok() {
            flood(stream, b"x-y: z\r\n");
        }
    });
    let broken = Outcome::Fails("the connection broke");
    let no_connection = Outcome::Fails("no connection");
    Case::new("nobody listens", format!("http://{nobody}/"), no_connection).run();
    Case::new("there is no such name", "http://nowhere.test/", no_connection).run();
    Case::new("there is no such name", "https://nowhere.test/", no_connection).run();
    for (name, receiver) in [
        ("reset", &reset),
        ("reset within the request", &reset_half_way),
        ("closed without an answer", &closes),
        ("closed within the head", &half_a_head),
        ("an answer that is no HTTP", &no_http),
        ("a head without an end", &endless_head),
    ] {
        Case::of(name, receiver, broken).run();
        assert_eq!(
            receiver.count(),
            RETRY_DELAYS.len() + 1,
            "{name}: one connection for each attempt"
        );
    }
    // The system's resolver does not find a name either.
    let policy = Policy { allowed: vec!["127.0.0.1/32".parse().unwrap()] };
    let sender = Sender::new(policy, system_lookup(), Timeouts::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let unknown = "http://orrery.invalid/".parse().unwrap();
    let sent = sender.send(&unknown, Format::Service, &[], bytes::Bytes::new());
    let attempted = runtime.block_on(sent);
    assert!(attempted.status.is_none() && attempted.error.is_some(), "{attempted:?}");
}

#[test]
fn unsuccessful_responses_are_followed_by_scheduled_retries() {
    let elsewhere = Receiver::start(|_| answer(200));
    for status in [301, 302, 303, 307, 308] {
        let redirecting = Hostile::answering(format!(
            "HTTP/1.1 {status} X\r\nlocation: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            elsewhere.url("/")
        ));
        Case::of("redirects", &redirecting, Outcome::Status(status)).run();
    }
    assert_eq!(elsewhere.count(), 0, "no redirect is followed");
    let gone =
        Hostile::answering("HTTP/1.1 410 Gone\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let delivery = Case::of("is gone", &gone, Outcome::Status(410)).run();
    assert!(delivery.reason.unwrap().contains("410"));
    for asks in [0, 1, 77, 3600, 10_800] {
        let busy = Hostile::answering(format!(
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: {asks}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        ));
        let case = Case::of("asks to wait", &busy, Outcome::Status(429));
        Case { asks, ..case }.run();
    }
    // A date in `Retry-After` is compared with the response's `Date`.
    let busy = Hostile::answering(
        "HTTP/1.1 503 X\r\ndate: Fri, 31 Dec 1999 23:59:00 GMT\r\nretry-after: Sat, 01 Jan 2000 00:01:00 GMT\r\n\
         connection: close\r\ncontent-length: 0\r\n\r\n",
    );
    let case = Case::of("asks to wait until a date", &busy, Outcome::Status(503));
    Case { asks: 120, ..case }.run();
    // A connection that is kept alive serves all attempts.
    let kept = Hostile::start(|mut stream| {
        let mut unread = Vec::new();
        while read(&mut stream, &mut unread).is_some() {
            stream.write_all(b"HTTP/1.1 500 X\r\ncontent-length: 3\r\n\r\nwhy").unwrap();
        }
    });
    let delivery = Case::of("fails", &kept, Outcome::Status(500)).run();
    assert_eq!((kept.count(), delivery.attempts[10].excerpt.as_str()), (1, "why"));
}

#[test]
fn deliveries_require_a_valid_server_certificate() {
    if std::env::var_os(INSIDE).is_none() {
        // A process reads the trusted authorities when it first uses TLS.
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TLS_TEST, "--nocapture"])
            .env(INSIDE, "1")
            .env("SSL_CERT_FILE", certificates().join("authority.pem"))
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && output.contains("held inside"),
            "{output}{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        return;
    }
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let (good, good_requests) = speaking_tls(tls("receiver.pem"), OK);
    let (unknown, unknown_requests) = speaking_tls(tls("self-signed.pem"), OK);
    let plain = Hostile::start(|mut stream| {
        // The receiver does not understand the TLS handshake.
        if matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let url = |scheme: &str, name: &str, receiver: &Hostile| {
        format!("{scheme}://{name}:{}/", receiver.address.port())
    };
    // Without this success, the failures below would prove nothing.
    let right = url("https", "receiver.test", &good);
    Case::new("the right name", right, Outcome::Status(200)).run();
    assert_eq!(good_requests.load(Ordering::SeqCst), 1);
    let refused = Outcome::Fails("no connection");
    let wrong = url("https", "other.test", &good);
    let delivery = Case::new("another's name", wrong, refused).run();
    println!("{:?}", delivery.attempts[0].error);
    let delivery = Case::new("an address", url("https", "127.0.0.1", &good), refused).run();
    println!("{:?}", delivery.attempts[0].error);
    assert_eq!(good_requests.load(Ordering::SeqCst), 1);
    let delivery =
        Case::new("signed by itself", url("https", "receiver.test", &unknown), refused).run();
    println!("{:?}", delivery.attempts[0].error);
    assert_eq!(
        (unknown.count(), unknown_requests.load(Ordering::SeqCst)),
        (RETRY_DELAYS.len() + 1, 0)
    );
    let delivery = Case::new("plain text", url("https", "receiver.test", &plain), refused).run();
    println!("{:?}", delivery.attempts[0].error);
    // The other way round: a TLS server answers plain HTTP.
    let (good, requests) = speaking_tls(tls("receiver.pem"), OK);
    let broken = Outcome::Fails("the connection broke");
    let delivery =
        Case::new("TLS for plain text", url("http", "receiver.test", &good), broken).run();
    println!("{:?}", delivery.attempts[0].error);
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    println!("held inside");
}
