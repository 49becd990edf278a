//! A lake behind a plain HTTP server that fails in many ways while it is followed.

use orrery::domain::LedgerSeq;
use orrery::service::Ended;
use orrery::source::lake::{GivenLayout, LakeSettings, LakeSource};

use orrery_testkit::chain::{self, Chain, FOREIGN, FORK, MAIN};
use orrery_testkit::following::{Following, INGESTION, SOURCE};
use orrery_testkit::lake_server::{FileRequest, LakeServer, file};
use orrery_testkit::provider::{Delivery, Reply};

use crate::scene::{self, Server, assert_holds, bad_ledger, survives, trouble};

type Scene = scene::Scene<LakeServer>;

impl Server for LakeServer {
    type Request = FileRequest;
    type Honest = Reply;
    type Source = LakeSource;

    fn start(chain: &'static Chain, latest: u32) -> Self {
        Self::start(chain, latest)
    }

    fn source(&self, next: Option<u32>) -> LakeSource {
        self.source(next.expect("a lake is opened near a ledger"))
    }

    fn default_source(&self) -> LakeSource {
        let settings = LakeSettings::at(self.settings().bucket.address);
        LakeSource::connect(&settings, &MAIN.network, Some(LedgerSeq(2))).unwrap()
    }

    fn set_fault(&self, fault: impl Fn(&FileRequest, Reply) -> Reply + Send + Sync + 'static) {
        self.set_fault(fault);
    }

    fn clear_fault(&self) {
        self.clear_fault();
    }

    fn close_up_to(&self, latest: u32) {
        self.close_up_to(latest);
    }
}

/// Returns the honest reply, or `other` for the file of ledger 25.
fn in_place_of_25(asked: &FileRequest, honest: Reply, other: impl FnOnce(Reply) -> Reply) -> Reply {
    if asked.ledger == Some(25) { other(honest) } else { honest }
}

/// Replaces the body for ledger 25; `content-length` fits the new body.
fn body_of_25(asked: &FileRequest, honest: Reply, other: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Reply {
    in_place_of_25(asked, honest, |honest| Reply { body: other(honest.body), ..honest })
}

#[test]
fn every_http_failure_is_reported_and_recovered_from() {
    survives::<LakeServer>(&[
        trouble("closes connections", "cannot read http://127.0.0.1", |_, honest| {
            honest.delivered(Delivery::Refused)
        }),
        trouble("hangs", "no answer in time", |_, honest| honest.delivered(Delivery::Never)),
        trouble("half-closes", "cannot read http://127.0.0.1", |_, honest| {
            honest.delivered(Delivery::HalfClosed)
        }),
        trouble("500", "the server answers 500 Internal Server Error", |_, _| Reply::status(500)),
        trouble("503", "503 Service Unavailable", |_, _| {
            Reply::status(503).header("retry-after", "1")
        }),
        trouble("429", "429 Too Many Requests", |_, _| {
            Reply::status(429).header("retry-after", "2")
        }),
        trouble("401", "may not be read: the server answers 401", |_, _| Reply::status(401)),
        trouble("403 everywhere", "may not be read: the server answers 403", |_, _| {
            Reply::status(403)
        }),
        trouble("another place", "points to http://elsewhere.example/lake", |_, _| {
            Reply::status(302).header("location", "http://elsewhere.example/lake?token=secret")
        }),
        trouble("a page for people", "cannot take ledgers from", |_, honest| match honest.status {
            404 => Reply { status: 200, ..Reply::status(200) },
            _ => Reply::status(200),
        }),
    ]);
}

/// With the default timing and settings. Small: one failure, for a moment; full: four failures of
/// 30 seconds each, after which the retry delays are the longest.
#[test]
fn recovery_is_detected_within_ten_seconds() {
    let failures = [
        ("503 Service Unavailable", Reply::status(503)),
        ("no answer in time", Reply::status(200).delivered(Delivery::Never)),
        ("may not be read", Reply::status(403)),
        ("the connection broke", Reply::status(200).delivered(Delivery::HalfClosed)),
    ];
    scene::recovery_is_noticed::<LakeServer>(&failures);
}

#[test]
fn every_damaged_file_is_reported_and_recovered_from() {
    survives::<LakeServer>(&[
        bad_ledger("breaks off", "cannot read http", |asked, honest| {
            in_place_of_25(asked, honest, |honest| {
                let half = honest.body.len() / 2;
                honest.delivered(Delivery::CutAfter(half))
            })
        }),
        bad_ledger("is cut off", "25.xdr.zst: it is cut off", |asked, honest| {
            body_of_25(asked, honest, |body| body[..body.len() / 2].to_vec())
        }),
        bad_ledger("is flipped", "25.xdr.zst: it cannot be read past byte", |asked, honest| {
            body_of_25(asked, honest, |mut body| {
                let middle = body.len() / 2;
                body[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
                body
            })
        }),
        bad_ledger("is a bomb", "longer than 64 MiB", |asked, honest| {
            body_of_25(asked, honest, |_| file(25, &vec![0; (64 << 20) + 1]))
        }),
        bad_ledger("is empty", "25.xdr.zst: it is empty", |asked, honest| {
            body_of_25(asked, honest, |_| Vec::new())
        }),
        bad_ledger("is too long", "is more than 128 MiB", |asked, honest| {
            in_place_of_25(asked, honest, |honest| {
                let delivery = Delivery::Announced(129 << 20);
                honest.delivered(delivery)
            })
        }),
        bad_ledger(
            "is repeated",
            "holds ledgers 24 to 24, but its name promises 25",
            |asked, honest| body_of_25(asked, honest, |_| file(24, &MAIN.ledger(24).xdr)),
        ),
        bad_ledger("is misnamed", "announces ledger 25 and holds 24", |asked, honest| {
            body_of_25(asked, honest, |_| file(25, &MAIN.ledger(24).xdr))
        }),
        bad_ledger("is left out", "has ledger 40 but not ledger 25", |asked, honest| {
            in_place_of_25(asked, honest, |_| Reply::status(404))
        }),
    ]);
}

/// Errors inside a ledger are found by ingestion, which makes the follower fetch the ledger again.
#[test]
fn a_ledger_of_another_chain_is_never_stored() {
    let forked: fn(&FileRequest, Reply) -> Reply = |asked, honest| match asked.ledger {
        Some(ledger) if ledger >= 25 && honest.status == 200 => {
            Reply { body: file(ledger, &FORK.ledger(ledger).xdr), ..honest }
        }
        _ => honest,
    };
    let garbled: fn(&FileRequest, Reply) -> Reply = |asked, honest| {
        body_of_25(asked, honest, |_| {
            let mut xdr = MAIN.ledger(25).xdr.clone();
            let end = xdr.len() - 8;
            xdr[end..].fill(0x55);
            file(25, &xdr)
        })
    };
    let foreign: fn(&FileRequest, Reply) -> Reply = |asked, honest| match asked.ledger {
        Some(ledger) if ledger >= 25 && honest.status == 200 => {
            Reply { body: file(ledger, &FOREIGN.ledger(ledger).xdr), ..honest }
        }
        _ => honest,
    };
    for (words, fault) in [
        ("ledger 25 links to", forked),
        ("belongs to another network", foreign),
        ("ledger 25 cannot be decoded", garbled),
    ] {
        let (scene, following) = Scene::followed(20);
        scene.server.set_fault(fault);
        scene.server.close_up_to(40);
        following.wait_until_down(INGESTION, words);
        assert_eq!(following.latest(), 24);
        scene.server.clear_fault();
        scene.recovers(following);
    }
}

#[test]
fn a_manifest_of_another_network_is_refused_by_name() {
    let scene = Scene::new(&MAIN, 20);
    scene.server.set_passphrase(FOREIGN.network.passphrase());
    let following = scene.follow(Some(2));
    following.wait_until_down(SOURCE, "of the network \"Elsewhere ; May 2026\", not of local");
    let Ended::Failed(error) = following.end() else { panic!("it cannot go on") };
    assert!(error.to_string().contains("not of local"), "{error}");
    assert_eq!(scene.store.status().latest(), None);

    scene.server.set_passphrase(MAIN.network.passphrase());
    scene.server.close_up_to(40);
    let following = scene.follow(Some(2));
    scene.completes(following);
}

#[test]
fn a_lagging_lake_is_polled_without_an_error() {
    let (scene, following) = Scene::followed(20);
    let before = scene.server.requests().len();
    following
        .wait_until("the tip was polled often", |_| scene.server.requests().len() > before + 100);
    assert_eq!((following.latest(), following.down(SOURCE)), (20, None));
    let asked = scene.server.requests();
    let polls = asked[before..].iter().filter(|request| request.method == "GET").count();
    assert!(polls * 2 > asked.len() - before, "few questions beside those for the next file");
    scene.server.close_up_to(40);
    scene.recovers(following);
}

#[test]
fn a_partially_written_newest_file_is_retried() {
    let (scene, following) = Scene::followed(20);
    scene.server.set_fault(|asked, honest| match asked.ledger {
        Some(21) => {
            let half = honest.body.len() / 2;
            Reply { body: honest.body[..half].to_vec(), ..honest }
        }
        _ => honest,
    });
    scene.server.close_up_to(21);
    let before = scene.server.requests().len();
    following
        .wait_until("the file was polled often", |_| scene.server.requests().len() > before + 100);
    assert_eq!((following.latest(), following.down(SOURCE)), (20, None));
    scene.server.clear_fault();
    following.wait_until_recovered(21);
    scene.server.close_up_to(40);
    scene.recovers(following);
}

/// S3 answers 403 for a missing object when the client may not list the bucket.
fn forbidden_for_missing(_: &FileRequest, honest: Reply) -> Reply {
    if honest.status == 404 { Reply::status(403) } else { honest }
}

#[test]
fn a_403_may_mean_a_missing_file() {
    let scene = Scene::new(&MAIN, 20);
    scene.server.set_fault(forbidden_for_missing);
    let following = scene.follow(Some(2));
    following.wait_until_stored(20);
    let before = scene.server.requests().len();
    following
        .wait_until("the tip was polled often", |_| scene.server.requests().len() > before + 100);
    assert_eq!(following.down(SOURCE), None);
    scene.server.set_fault(|_, _| Reply::status(403));
    following.wait_until_down(SOURCE, "may not be read");
    scene.server.set_fault(forbidden_for_missing);
    scene.server.close_up_to(40);
    scene.recovers(following);
}

#[test]
fn without_head_requests_the_first_bytes_are_read() {
    for status in [405, 501] {
        let scene = Scene::new(&MAIN, 20);
        scene.server.set_fault(move |asked, honest| match &*asked.method {
            "HEAD" => Reply::status(status),
            _ => honest,
        });
        let following = scene.follow(Some(2));
        following.wait_until_stored(20);
        scene.server.close_up_to(40);
        scene.completes(following);
        let asked = scene.server.requests();
        assert_eq!(asked.iter().filter(|request| request.method == "HEAD").count(), 1);
    }
}

#[test]
fn an_old_lake_without_a_manifest_is_read_with_settings() {
    for extension in ["zst", "zstd", "gz"] {
        let scene = Scene::new(&MAIN, 40);
        scene.server.use_old_layout(extension);
        let mut settings = scene.server.settings();
        let without = LakeSource::connect(&settings, &MAIN.network, Some(LedgerSeq(2))).unwrap();
        let following = Following::start(&scene.store, without, Some(2));
        following.wait_until_down(SOURCE, "give the address of the newest");
        following.stop();

        settings.layout = GivenLayout {
            ledgers_per_batch: Some(1),
            batches_per_partition: Some(8),
            extension: None,
        };
        let source = LakeSource::connect(&settings, &MAIN.network, Some(LedgerSeq(2))).unwrap();
        let following = Following::start(&scene.store, source, Some(2));
        scene.completes(following);
    }
}

#[test]
fn recorded_ledgers_are_stored_as_they_appear() {
    let Some(public) = chain::public() else { return };
    let scene = Scene::new(public, public.first());
    let next = public.first();
    let following = Following::start(&scene.store, scene.server.source(next), Some(next));
    for sequence in public.first()..=public.last() {
        scene.server.close_up_to(sequence);
        following.wait_until_stored(sequence);
    }
    following.stop();
    assert_holds(&scene.store, public);
}
