//! Messages for chats: stand-ins for the three services, with their limits, which nothing exceeds; nothing is
//! lost, and nothing is sent twice under another id. Endpoints stay secret.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery::settings;
use orrery::webhooks::delivery::Load;
use orrery::webhooks::manage::NewSubscriptions;
use orrery::webhooks::message::Message;
use orrery::webhooks::message::format::Format;
use orrery::webhooks::registry::Registry;
use orrery::webhooks::rows::State;
use orrery::webhooks::target::{AttemptResult, Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::time::Clocks;
use orrery::webhooks::{Sealer, WebhookError};
use orrery_testkit::histories;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::receiver::{Receiver, answer};
use super::schedule::{HOUR, Scene};
use super::world::{BEGINNING, Sent, owner, status, unreachable, wanted};

/// A part of the endpoints that nobody may see.
const TOKEN: &str = "XoXbSecretTokenOfTheChat";

const CHATS: [Format; 3] = [Format::Slack, Format::Discord, Format::Telegram];

/// An endpoint of a service, at the given server.
fn endpoint(format: Format, server: &str, chat: u32) -> String {
    match format {
        Format::Slack => format!("{server}/services/T{chat}/B1/{TOKEN}"),
        Format::Discord => format!("{server}/api/webhooks/{chat}/{TOKEN}"),
        Format::Telegram => format!("{server}/bot77:{TOKEN}/sendMessage?chat_id=-{chat}"),
        Format::Service | Format::Text => format!("{server}/{chat}"),
    }
}

fn asked(scene: &Scene, format: Format, endpoint: &str) -> NewSubscriptions {
    let message = Message::parse(format, "{name} of {contract_id|short}: {topics}").unwrap();
    NewSubscriptions { message: Some(message), ..wanted(endpoint, scene.contract()) }
}

fn subscribe(scene: &Scene, whose: &str, format: Format, endpoint: &str) -> u32 {
    let asked = asked(scene, format, endpoint);
    scene.world.webhooks.create(&owner(whose), asked).unwrap().ids[0]
}

fn limited(wait: Option<Duration>) -> AttemptResult {
    AttemptResult { retry_after: wait, ..status(429) }
}

/// How many messages a service takes at one endpoint, in so many milliseconds.
fn limits(format: Format) -> &'static [(usize, u64)] {
    match format {
        Format::Slack => &[(1, 1000)],
        Format::Discord => &[(5, 2000), (30, 60_000)],
        Format::Telegram => &[(20, 60_000), (2, 1000)],
        Format::Service | Format::Text => &[],
    }
}

/// A service that counts, and sometimes asks to wait although nobody has exceeded its limits, or fails.
struct StandIn {
    rng: ChaCha8Rng,
    /// When each endpoint has taken messages, and their ids.
    taken: HashMap<String, Vec<(u64, String)>>,
    /// When each endpoint has asked to wait, and before when it wants none.
    closed: HashMap<String, (u64, u64)>,
    exceeded: usize,
    asked_to_wait: usize,
}

impl StandIn {
    fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (taken, closed) = (HashMap::new(), HashMap::new());
        Self { rng, taken, closed, exceeded: 0, asked_to_wait: 0 }
    }

    fn answer(&mut self, format: Format, sent: &Sent) -> AttemptResult {
        let (at, endpoint) = (sent.at, &sent.endpoint);
        let taken = self.taken.entry(endpoint.clone()).or_default();
        let closed = self.closed.get(endpoint).filter(|(_, until)| at < *until);
        if let Some((asked, until)) = closed
            && *asked == at
        {
            // It was on its way when the other one was told.
            self.asked_to_wait += 1;
            return limited(Some(Duration::from_millis(until - at)));
        }
        let has_room = |(most, within): &(usize, u64)| {
            taken.iter().filter(|(before, _)| at - before < *within).count() < *most
        };
        if closed.is_some() || !limits(format).iter().all(has_room) {
            self.exceeded += 1;
            return limited(Some(Duration::from_secs(1)));
        }
        match self.rng.random_range(0..10) {
            0 => {
                let wait = Duration::from_millis(self.rng.random_range(100..90_000));
                self.closed.insert(endpoint.clone(), (at, at + wait.as_millis() as u64));
                self.asked_to_wait += 1;
                limited(Some(wait))
            }
            1 => {
                self.asked_to_wait += 1;
                limited(None)
            }
            2 => [status(500), unreachable()][self.rng.random_range(0..2)].clone(),
            _ => {
                taken.push((at, sent.id.clone()));
                status(200)
            }
        }
    }
}

/// Two owners with a chat each, and another subscription to the first one's chat.
fn history(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let format = CHATS[rng.random_range(0..3)];
    let mut scene = Scene::new();
    let server = "https://chat.example";
    let (shared, other) = (endpoint(format, server, 1), endpoint(format, server, 2));
    let all = [("ana", &shared), ("bob", &shared), ("bob", &other)];
    let ids = all.map(|(whose, endpoint)| (whose, subscribe(&scene, whose, format, endpoint)));
    for _ in 0..rng.random_range(1..8) {
        scene.ledgers_with_events(ids[0].1);
    }
    let stand_in = Arc::new(Mutex::new(StandIn::new(seed)));
    let own = Arc::clone(&stand_in);
    scene.world.deliver(rng.random(), Arc::new(move |sent| own.lock().answer(format, sent)));
    scene.world.run_until(BEGINNING + HOUR / 2);
    for _ in 0..rng.random_range(0..4) {
        scene.ledgers_with_events(ids[0].1);
        let next = scene.world.now() + rng.random_range(0..60_000);
        scene.world.run_until(next);
    }
    scene.world.run_until(BEGINNING + 100 * HOUR);
    let stand_in = stand_in.lock();
    assert_eq!(stand_in.exceeded, 0, "no limit is exceeded, and every wait is kept");
    let taken: Vec<&String> = stand_in.taken.values().flatten().map(|(_, id)| id).collect();
    let distinct: BTreeSet<&String> = taken.iter().copied().collect();
    assert_eq!(distinct.len(), taken.len(), "nothing is taken twice");
    let mut expected = BTreeSet::new();
    for (whose, id) in ids {
        let tag = scene.world.registry.get(id).unwrap().definition.tag.clone();
        let mut refused = 0;
        for (number, delivery) in scene.world.deliveries(whose, id) {
            assert_eq!(delivery.state, State::Delivered, "{delivery:?}");
            let statuses: Vec<_> = delivery.attempts.iter().map(|it| it.status).collect();
            assert!(
                !statuses.contains(&Some(429)),
                "to be told to wait is no attempt: {statuses:?}"
            );
            refused += statuses.len() - 1;
            expected.insert(number.id(&tag));
        }
        assert_eq!(scene.world.registry.get(id).unwrap().waiting(), 0);
        // Without failures, messages arrive in the order of the chain.
        if refused == 0 {
            let own = stand_in.taken.values().flatten().filter(|(_, it)| it.starts_with(&tag));
            let order: Vec<&String> = own.map(|(_, id)| id).collect();
            let sorted: Vec<String> =
                scene.world.deliveries(whose, id).iter().map(|it| it.0.id(&tag)).collect();
            assert!(order.into_iter().eq(&sorted));
        }
    }
    assert!(distinct.into_iter().eq(&expected), "nothing is lost");
}

#[test]
fn limits_and_waits_are_kept_and_nothing_is_lost() {
    histories::run(30, 1000, history);
}

#[test]
fn a_chat_that_asks_to_wait_holds_up_no_other() {
    for format in CHATS {
        let mut scene = Scene::new();
        let server = "https://chat.example";
        let slow = subscribe(&scene, "ana", format, &endpoint(format, server, 1));
        let quick = subscribe(&scene, "ana", format, &endpoint(format, server, 2));
        let others = subscribe(&scene, "bob", format, &endpoint(format, server, 3));
        scene.ledger_with_one_event(slow);
        let first = endpoint(format, server, 1);
        scene.world.deliver(
            0,
            Arc::new(move |sent: &Sent| match sent.endpoint == first {
                true => limited(Some(Duration::from_secs(7200))),
                false => status(200),
            }),
        );
        let Load { in_flight, .. } = scene.world.settle();
        assert_eq!(in_flight, 0);
        let states = |whose: &str, id| -> Vec<State> {
            scene.world.deliveries(whose, id).iter().map(|(_, it)| it.state).collect()
        };
        assert_eq!(states("ana", slow), [State::Pending]);
        assert_eq!(
            (states("ana", quick), states("bob", others)),
            (vec![State::Delivered], vec![State::Delivered])
        );
        scene.world.run_until(BEGINNING + HOUR);
        let to_slow = scene
            .world
            .sent
            .lock()
            .iter()
            .filter(|it| it.id.starts_with(&tag(&scene, slow)))
            .count();
        assert_eq!(to_slow, 1, "it has asked for two hours");
        scene.world.run_until(BEGINNING + 2 * HOUR);
        let to_slow = scene
            .world
            .sent
            .lock()
            .iter()
            .filter(|it| it.id.starts_with(&tag(&scene, slow)))
            .count();
        assert_eq!(to_slow, 2);
    }
}

fn tag(scene: &Scene, id: u32) -> String {
    scene.world.registry.get(id).unwrap().definition.tag.clone()
}

#[test]
fn of_more_than_a_thousand_messages_the_oldest_are_given_up() {
    let mut scene = Scene::new();
    let format = Format::Slack;
    let id = subscribe(&scene, "ana", format, &endpoint(format, "https://chat.example", 1));
    let is_open = Arc::new(Mutex::new(false));
    let now_open = Arc::clone(&is_open);
    scene.world.deliver(
        0,
        Arc::new(move |_| match *now_open.lock() {
            true => status(200),
            false => limited(Some(Duration::from_secs(86_400))),
        }),
    );
    while scene.world.deliveries("ana", id).len() < 1100 {
        scene.ledgers_with_events(id);
        scene.world.settle();
    }
    let subscription = scene.world.registry.get(id).unwrap();
    let deliveries = scene.world.deliveries("ana", id);
    let dead: Vec<_> = deliveries.iter().take_while(|(_, it)| it.state == State::Dead).collect();
    assert_eq!(dead.len(), deliveries.len() - 1000, "exactly those beyond a thousand");
    let reason = "more than 1000 messages were waiting for its chat, and this was the oldest";
    assert!(
        dead.iter().all(|(_, it)| it.reason.as_deref() == Some(reason) && it.attempts.is_empty())
    );
    assert!(deliveries[dead.len()..].iter().all(|(_, it)| it.state == State::Pending));
    assert_eq!(subscription.waiting(), 1000);
    assert!(subscription.is_enabled());
    // A replay of ledgers stops where there is no room, and one of a delivery sends it again.
    let replayed = scene.world.webhooks.replay_ledgers(
        &owner("ana"),
        id,
        orrery::domain::LedgerRange::new(1, 50),
        &|| false,
    );
    assert!(replayed.unwrap().next.is_some());
    *is_open.lock() = true;
    scene.world.run_until(BEGINNING + 30 * HOUR);
    let (first, _) = dead[0];
    let first = first.id(&subscription.definition.tag);
    scene.world.webhooks.replay_one(&owner("ana"), id, &first).unwrap();
    scene.world.run_until(BEGINNING + 31 * HOUR);
    let deliveries = scene.world.deliveries("ana", id);
    let delivered = deliveries.iter().filter(|(_, it)| it.state == State::Delivered).count();
    assert_eq!((delivered, deliveries[0].1.state), (1001, State::Delivered));
    let tried = usize::from(was_tried(&scene, &first));
    assert_eq!(scene.world.sent.lock().iter().filter(|it| it.id == first).count(), 1 + tried);
}

/// Whether the first attempt, which was told to wait, was of this delivery.
fn was_tried(scene: &Scene, id: &str) -> bool {
    scene.world.sent.lock().first().is_some_and(|it| it.id == id)
}

#[test]
fn a_404_of_a_chat_disables_it() {
    for (format, disables) in [
        (Format::Slack, true),
        (Format::Discord, true),
        (Format::Telegram, true),
        (Format::Text, false),
    ] {
        let mut scene = Scene::new();
        let id = subscribe(&scene, "ana", format, &endpoint(format, "https://chat.example", 1));
        scene.ledger_with_one_event(id);
        scene.world.deliver(0, Arc::new(|_| status(404)));
        scene.world.run_until(BEGINNING + 1000);
        let state = scene.world.registry.get(id).unwrap().state();
        assert_eq!(state.enabled, !disables, "{format:?}");
        let reason = disables
            .then(|| "its endpoint answered 404 (Not Found), which ends deliveries".to_owned());
        assert_eq!(state.disabled_reason, reason);
    }
}

fn holds(directory: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => holds(&path, text),
        false => {
            std::fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes())
        }
    })
}

#[test]
fn endpoints_of_chats_are_sealed_and_void_under_another_key() {
    let scene = Scene::new();
    let mut subscribed = Vec::new();
    for format in CHATS {
        let endpoint = endpoint(format, "https://chat.example:8443", 1234);
        let id = subscribe(&scene, "ana", format, &endpoint);
        let twice = scene.world.webhooks.create(&owner("ana"), asked(&scene, format, &endpoint));
        assert!(matches!(twice, Err(WebhookError::Duplicate(first)) if first == id), "{format:?}");
        let subscription = scene.world.registry.get(id).unwrap();
        let last = &endpoint[endpoint.len() - 4..];
        assert_eq!(subscription.definition.endpoint, format!("https://chat.example:8443/…{last}"));
        assert_eq!(subscription.endpoint.as_ref().unwrap().as_str(), endpoint);
        assert!(
            !format!("{:?} {:?}", subscription.definition, subscription.endpoint).contains(TOKEN)
        );
        subscribed.push(id);
    }
    // Two chats of which the same is shown.
    let format = Format::Slack;
    let same = endpoint(format, "https://chat.example:8443", 99);
    subscribed.push(subscribe(&scene, "ana", format, &same));
    assert!(!holds(scene.path(), TOKEN), "the store holds the address");
    let other = Registry::default();
    let clocks = Clocks { machine: Arc::new(|| 0), elapsed: Arc::new(|| 0) };
    let sealer = Sealer::new(&[8; 32]).unwrap();
    other.open(&scene.world.store, sealer, settings::Webhooks::default(), &clocks).unwrap();
    for id in &subscribed {
        let void = other.get(*id).unwrap();
        assert!(void.endpoint.is_none() && void.secrets().is_none());
        assert_eq!(&*void.server(), "https://chat.example:8443");
    }
    // One that is void can be deleted, and made again.
    scene.world.webhooks.delete(&owner("ana"), subscribed[0]).unwrap();
    let again = endpoint(Format::Slack, "https://chat.example:8443", 1234);
    subscribe(&scene, "ana", Format::Slack, &again);
}

fn response(status: &str, headers: &str, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

/// Over sockets: the answers of each service as it words them, and the bodies that it takes.
#[test]
fn waits_are_read_from_the_answers_of_each_service() {
    for (format, headers, body, wait) in [
        (Format::Slack, "retry-after: 30\r\n", "rate_limited", 30),
        (
            Format::Discord,
            "retry-after: 1\r\n",
            r#"{"message": "You are being rate limited.", "retry_after": 64.57, "global": false}"#,
            65,
        ),
        (
            Format::Telegram,
            "",
            r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}"#,
            35,
        ),
    ] {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let receiver = Receiver::start(move |_| {
            match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => response("429 Too Many Requests", headers, body),
                1 => response("500 Oops", "", &format!("no bot77:{TOKEN}")),
                _ => answer(200),
            }
        });
        let policy = Policy { allowed: vec!["127.0.0.1/32".parse().unwrap()] };
        let mut scene = Scene::sending(Sender::new(policy, system_lookup(), Timeouts::default()));
        let id = subscribe(&scene, "ana", format, &endpoint(format, &receiver.url(""), 1));
        scene.ledger_with_one_event(id);
        scene.world.deliver_over_sockets(0);
        scene.world.run_until(BEGINNING + wait * 1000 - 1000);
        assert_eq!(receiver.count(), 1, "{format:?}");
        scene.world.run_until(BEGINNING + wait * 1000);
        assert_eq!(receiver.count(), 2, "{format:?}");
        scene.world.run_until(BEGINNING + HOUR);
        let [(_, delivery)] = &scene.world.deliveries("ana", id)[..] else { panic!() };
        let statuses: Vec<_> = delivery.attempts.iter().map(|it| it.status).collect();
        assert_eq!((delivery.state, statuses), (State::Delivered, vec![Some(500), Some(200)]));
        assert!(!format!("{delivery:?}").contains(TOKEN), "{delivery:?}");
        for received in receiver.received() {
            assert_eq!(received.header("content-type"), Some("application/json"));
            let sent = received.json();
            let text = match format {
                Format::Slack => &sent["blocks"][0]["text"]["text"],
                Format::Discord => &sent["content"],
                _ => &sent["text"],
            };
            assert!(text.as_str().is_some_and(|text| text.contains("of")), "{sent}");
        }
        let bodies = scene.world.webhooks.bodies(
            &owner("ana"),
            id,
            &scene.world.deliveries("ana", id),
            1 << 20,
        );
        let body = bodies.unwrap().remove(0).unwrap();
        assert_eq!(
            body.as_bytes(),
            receiver.received()[0].body,
            "the body is listed as it is sent"
        );
    }
}

#[test]
fn a_text_is_sent_as_text_and_signed() {
    let receiver = Receiver::start(|_| answer(200));
    let policy = Policy { allowed: vec!["127.0.0.1/32".parse().unwrap()] };
    let mut scene = Scene::sending(Sender::new(policy, system_lookup(), Timeouts::default()));
    let message = Message::parse(Format::Text, "{name}, again").unwrap();
    let asked =
        NewSubscriptions { message: Some(message), ..wanted(&receiver.url("/"), scene.contract()) };
    let made = scene.world.webhooks.create(&owner("ana"), asked).unwrap();
    let id = made.ids[0];
    scene.ledger_with_one_event(id);
    scene.world.webhooks.test(&owner("ana"), id).unwrap();
    scene.world.deliver_over_sockets(0);
    scene.world.run_until(BEGINNING + 1000);
    let received = receiver.received();
    let texts: BTreeSet<String> =
        received.iter().map(|it| String::from_utf8(it.body.clone()).unwrap()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts.contains(&format!("Test of Orrery: subscription {id}")), "{texts:?}");
    assert!(texts.iter().any(|it| it.ends_with(", again")), "{texts:?}");
    for it in &received {
        assert_eq!(it.header("content-type"), Some("text/plain; charset=utf-8"));
        let now = BEGINNING / 1000;
        let verified = orrery::webhooks::signature::verify(
            made.secret.reveal(),
            |name| it.header(name),
            &it.body,
            now,
        );
        assert_eq!(verified, Ok(()));
    }
}

#[test]
fn a_link_needs_the_address_of_the_service() {
    let scene = Scene::new();
    let message = || Some(Message::parse(Format::Text, "{link}").unwrap());
    let asked = || NewSubscriptions {
        message: message(),
        ..wanted("https://a.example/", scene.contract())
    };
    let refused = scene.world.webhooks.create(&owner("ana"), asked()).err().unwrap();
    assert!(refused.to_string().contains("http.public_url"), "{refused}");
    scene.world.registry.link_to("https://orrery.example");
    assert!(scene.world.webhooks.create(&owner("ana"), asked()).is_ok());
}
