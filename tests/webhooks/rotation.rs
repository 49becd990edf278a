//! New secrets of subscriptions: which of them sign what is sent, and when those before end.

use orrery::store::{Fault, Mark, RowBounds};
use orrery::webhooks::rotation::{MOST_PREVIOUS, OVERLAP, Rotation};
use orrery::webhooks::rows::SUBSCRIPTIONS;
use orrery::webhooks::subscription::Row;
use orrery::webhooks::{CONSUMER, Secret, Secrets, WebhookError, signature};
use serde_json::{Value, json};

use super::receiver::{Receiver, answer};
use super::schedule::{Scene, always};
use super::service::{Owner, SETTINGS, busiest, directory, store};
use super::world::{BEGINNING, Sent, World, owner, status};
use orrery_testkit::binary::{Service, run};
use orrery_testkit::server::now;
use orrery_testkit::wait::wait_until;

const HOUR: u64 = 3_600_000;

fn rotate(world: &World, id: u32, secret: Option<&str>, end_previous: bool) -> Secret {
    let secret = secret.map(|text| Secret::chosen(text.to_owned()).unwrap());
    let wanted = Rotation { secret, end_previous };
    world.webhooks.rotate(&owner("ana"), id, wanted).unwrap().secret
}

/// Returns the secrets under which a delivery is signed: in the header with one signature, and in that
/// of Standard Webhooks.
fn signers(sent: &Sent, known: &[&Secret]) -> (usize, Vec<usize>) {
    let alone = |secret: &&Secret| {
        let secrets = Secrets { present: (*secret).clone(), previous: Vec::new() };
        signature::headers(&secrets, &sent.id, sent.at, &sent.body)
    };
    let alone: Vec<_> = known.iter().map(alone).collect();
    let plain = alone.iter().position(|it| it[0] == sent.headers[0]).unwrap();
    let standard = sent.headers[5].1.split(' ');
    let standard = standard.map(|one| alone.iter().position(|it| it[5].1 == one).unwrap());
    (plain, standard.collect())
}

/// Number of earlier secrets in the stored row.
fn stored_previous(world: &World, id: u32) -> usize {
    let view = world.store.consumer_view(CONSUMER, RowBounds::none()).unwrap();
    let row = SUBSCRIPTIONS.get(&view, &(Mark, id)).unwrap().unwrap();
    Row::decode(id, &row).unwrap().secrets.previous_secrets.len()
}

#[test]
fn the_secret_before_signs_for_a_day_beside_the_new_one() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let first = rotate(&scene.world, id, Some("the first one"), true);
    scene.world.deliver(0, always(status(200)));
    let sent = |scene: &mut Scene| {
        scene.ledger_with_one_event(id);
        scene.world.settle();
        scene.world.sent.lock().last().unwrap().clone()
    };
    assert_eq!(signers(&sent(&mut scene), &[&first]), (0, vec![0]));

    let second = rotate(&scene.world, id, None, false);
    scene.world.run_until(BEGINNING + 10 * HOUR);
    let third = rotate(&scene.world, id, None, false);
    let known = [&first, &second, &third];
    assert_eq!(signers(&sent(&mut scene), &known), (0, vec![0, 1, 2]));
    let until = |scene: &Scene| {
        let subscription = scene.world.registry.get(id).unwrap();
        subscription.previous_secrets_until(scene.world.registry.now().due)
    };
    assert_eq!(until(&scene), Some(BEGINNING + 10 * HOUR + OVERLAP));

    // In another process, too; and each ends by itself.
    let last = BEGINNING + OVERLAP - 1;
    let mut scene = scene.restarted(last, 0);
    scene.world.deliver(0, always(status(200)));
    assert_eq!(signers(&sent(&mut scene), &known), (0, vec![0, 1, 2]));
    scene.world.webhooks.sweep().unwrap();
    assert_eq!(stored_previous(&scene.world, id), 2);
    scene.world.set_time(last + 1);
    assert_eq!(signers(&sent(&mut scene), &known), (1, vec![1, 2]));
    scene.world.webhooks.sweep().unwrap();
    assert_eq!(stored_previous(&scene.world, id), 1, "an ended secret is stored no longer");
    scene.world.set_time(BEGINNING + 10 * HOUR + OVERLAP);
    assert_eq!(signers(&sent(&mut scene), &known), (2, vec![2]));
    assert_eq!(until(&scene), None);
    scene.world.webhooks.sweep().unwrap();
    assert_eq!(stored_previous(&scene.world, id), 0);

    // A secret that leaked ends at once.
    let fourth = rotate(&scene.world, id, None, true);
    assert_eq!(signers(&sent(&mut scene), &[&third, &fourth]), (1, vec![1]));
    assert_eq!(stored_previous(&scene.world, id), 0);
}

#[test]
fn as_many_secrets_sign_at_a_time_as_are_allowed() {
    let scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    for _ in 0..MOST_PREVIOUS {
        rotate(&scene.world, id, None, false);
    }
    let refused = |wanted| scene.world.webhooks.rotate(&owner("ana"), id, wanted).unwrap_err();
    let error = refused(Rotation::default());
    assert!(matches!(error, WebhookError::TooManySecrets { count: MOST_PREVIOUS, .. }), "{error}");
    let present = scene.world.registry.get(id).unwrap().secrets().unwrap().present.clone();
    let error = refused(Rotation { secret: Some(present.clone()), end_previous: false });
    assert!(error.to_string().contains("is the present secret"), "{error}");
    // Back to one that still signs, which takes no further place.
    let before = scene.world.registry.get(id).unwrap().secrets().unwrap().previous[0].clone();
    rotate(&scene.world, id, Some(before.secret.reveal()), false);
    let secrets = scene.world.registry.get(id).unwrap().secrets().unwrap();
    assert_eq!((&secrets.present, secrets.previous.len()), (&before.secret, MOST_PREVIOUS));
    assert!(!secrets.previous.iter().any(|it| it.secret == before.secret));
    rotate(&scene.world, id, None, true);
    assert_eq!(stored_previous(&scene.world, id), 0);
    let others = scene.world.webhooks.rotate(&owner("bob"), id, Rotation::default());
    assert!(matches!(others, Err(WebhookError::Unknown(_))));
}

/// Nobody knows a secret whose rotation was reported as failed, so it must never sign alone.
#[test]
fn after_a_failed_write_the_secret_before_goes_on() {
    for fault in [Fault::NotWritten, Fault::Written] {
        let scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        let first = rotate(&scene.world, id, None, true);
        let mut next = Some(fault);
        scene.world.store.faults().plan(move |_| next.take());
        let wanted = Rotation { secret: None, end_previous: true };
        assert!(scene.world.webhooks.rotate(&owner("ana"), id, wanted).is_err());
        scene.world.store.faults().clear();
        let mut scene = scene.restarted(BEGINNING + 1, 0);
        scene.world.deliver(0, always(status(200)));
        scene.ledger_with_one_event(id);
        scene.world.settle();
        let sent = scene.world.sent.lock().last().unwrap().clone();
        assert_eq!(signers(&sent, &[&first]), (0, vec![0]));
    }
}

/// The write was made although it failed, and the one that takes it back is not.
#[test]
fn the_secret_before_is_written_again_until_it_is_on_disk() {
    let scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let first = rotate(&scene.world, id, None, true);
    let mut left = vec![Fault::NotWritten, Fault::NotWritten, Fault::Written];
    scene.world.store.faults().plan(move |_| left.pop());
    let wanted = Rotation { secret: None, end_previous: true };
    assert!(scene.world.webhooks.rotate(&owner("ana"), id, wanted).is_err());
    assert!(scene.world.webhooks.keep_secrets().is_err(), "the third write fails, too");
    scene.world.webhooks.keep_secrets().unwrap();
    let mut scene = scene.restarted(BEGINNING + 1, 0);
    scene.world.deliver(0, always(status(200)));
    scene.ledger_with_one_event(id);
    scene.world.settle();
    let sent = scene.world.sent.lock().last().unwrap().clone();
    assert_eq!(signers(&sent, &[&first]), (0, vec![0]));
}

#[test]
fn a_new_secret_is_shown_once_and_survives_restarts_and_backups() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    let bob = Owner::new(directory.path(), &service, "bob");
    store(directory.path(), 0..5);
    let contract = busiest(&ana);
    let receiver = Receiver::start(|_| answer(200));
    let new = json!({ "webhook_endpoint": receiver.url("/"), "contract_ids": [contract] });
    let made = ana.post("webhooks/new", &new);
    let (id, first) = (made["ids"][0].clone(), made["secret"].as_str().unwrap().to_owned());
    let path = format!("webhooks/{id}/secret");
    assert!(ana.get("webhooks/list")[0]["previous_secrets_until"].is_null());
    assert_eq!(bob.ask("POST", &path, Some(&json!({}))).0, 404);
    let chosen = json!({ "webhook_secret": "a second secret" });
    let rotated = ana.post(&path, &chosen);
    assert_eq!((&rotated["id"], &rotated["secret"]), (&id, &json!("a second secret")));
    let until = rotated["previous_secrets_until"].clone();
    assert!(until.is_string(), "{rotated}");
    let (code, refused) = ana.ask("POST", &path, Some(&chosen));
    assert_eq!((code, &refused["code"]), (400, &json!("bad_request")), "{refused}");
    let listed = ana.get("webhooks/list");
    assert_eq!(listed[0]["previous_secrets_until"], until);
    assert!(!listed.to_string().contains("second secret"), "{listed}");

    // Receivers that have either secret accept what is sent.
    let arrives = |ana: &Owner, old: bool, secret: &str| {
        let count = receiver.count();
        ana.post(&format!("webhooks/{id}/test"), &json!({}));
        wait_until("the test arrives", || receiver.count() > count);
        let sent = receiver.received().last().unwrap().clone();
        let plain = signature::verify(&first, |name| sent.header(name), &sent.body, now());
        assert_eq!(plain.is_ok(), old, "{plain:?}");
        let secret = Secret::chosen(secret.to_owned()).unwrap();
        let secrets = Secrets { present: secret, previous: Vec::new() };
        let at = sent.header("webhook-timestamp").unwrap().parse::<u64>().unwrap() * 1000;
        let own = signature::headers(&secrets, &sent.id(), at, &sent.body);
        let mut standard = sent.header("webhook-signature").unwrap().split(' ');
        assert!(standard.any(|one| one == own[5].1), "{:?}", sent.header("webhook-signature"));
    };
    arrives(&ana, true, "a second secret");
    drop(service);
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    arrives(&ana, true, "a second secret");
    assert_eq!(ana.get("webhooks/list")[0]["previous_secrets_until"], until);

    let backups = tempfile::tempdir().unwrap();
    let to = backups.path().join("backups");
    let to = to.to_str().unwrap();
    run(directory.path(), &["backup", "--data-dir", ".", to]).succeeded();
    let ended = ana.post(&path, &json!({ "end_previous": true }));
    assert!(ended["previous_secrets_until"].is_null(), "{ended}");
    arrives(&ana, false, ended["secret"].as_str().unwrap());
    drop(service);
    let restored = backups.path().join("restored");
    let restore = ["restore", to, "--data-dir", restored.to_str().unwrap()];
    run(directory.path(), &restore).succeeded();
    let service = Service::start_with(&restored, &SETTINGS);
    let ana = Owner::new(&restored, &service, "ana");
    arrives(&ana, true, "a second secret");
}

/// As typed: the answer is the secret and until when the one before signs.
#[test]
fn secrets_are_rotated_on_the_command_line() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..5);
    let new = json!({
        "webhook_endpoint": "http://127.0.0.1:9/",
        "contract_ids": [busiest(&ana)],
    });
    let id = ana.post("webhooks/new", &new)["ids"][0].to_string();
    let base = format!("{}/rest", ana.base);
    let rotated = |more: &[&str]| {
        let verb = ["webhooks", "rotate", &id, "--base", &base, "--jwt", &ana.token];
        run(directory.path(), &[&verb, more].concat())
    };
    let shown: Value = rotated(&[]).json();
    assert!(shown["secret"].as_str().unwrap().starts_with("whsec_"), "{shown}");
    assert!(shown["previous_secrets_until"].is_string(), "{shown}");
    rotated(&[]).succeeded();
    rotated(&[]).succeeded();
    rotated(&[]).refuses(1, &["--end-previous is not given, and 3 earlier secrets"]);
    std::fs::write(directory.path().join("secret.txt"), "from a file\n").unwrap();
    let ended = rotated(&["--secret-file", "secret.txt", "--end-previous"]).json();
    assert_eq!(ended["secret"], "from a file");
    assert!(ended["previous_secrets_until"].is_null(), "{ended}");
}
