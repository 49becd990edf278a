//! An export by hand to a bucket that fails for a moment, or that cannot be written.

use std::sync::atomic::{AtomicU32, Ordering};

use orrery_testkit::binary::{Ran, Service, configure, run};
use orrery_testkit::provider::{Delivery, Reply, Request};
use orrery_testkit::s3::{Rights, S3Server};

use crate::export::{Scene, lake_of, s3_settings, writes};

/// Answers a request, given how many there were before, the request, and the honest answer.
type Fault = fn(u32, &Request, &dyn Fn() -> Reply) -> Reply;

/// S3 asks to repeat requests that it answers with 500 or 503, and conditional writes that it answers with
/// 409 `ConditionalRequestConflict`; the answer to a write that was made may be lost.
const TROUBLES: [(&str, Fault); 6] = [
    ("every second request is refused", |nth, _, honest| match nth % 2 {
        0 => s3_error(503, "SlowDown"),
        _ => honest(),
    }),
    ("the first requests fail", |nth, _, honest| match nth {
        0..3 => s3_error(500, "InternalError"),
        _ => honest(),
    }),
    ("there is no answer", |nth, _, honest| match nth {
        2 | 5 => Reply::status(200).delivered(Delivery::Refused),
        _ => honest(),
    }),
    ("conditional writes conflict", |nth, request, honest| {
        match writes(request, "manifest.json") && nth % 2 == 0 {
            true => s3_error(409, "ConditionalRequestConflict"),
            false => honest(),
        }
    }),
    ("writes are made and fail", |nth, request, honest| {
        let answer = honest();
        match request.method == "PUT" && nth % 2 == 0 {
            true => s3_error(500, "InternalError"),
            false => answer,
        }
    }),
    ("answers to writes are lost", |nth, request, honest| {
        let answer = honest();
        match request.method == "PUT" && nth % 2 == 0 {
            true => answer.delivered(Delivery::Refused),
            false => answer,
        }
    }),
];

/// What is not repeated, with what is said of it. A store without conditions is named as one.
const REFUSALS: [(u16, &str, &str); 4] = [
    (501, "NotImplemented", "to a conditional write (If-Match, If-None-Match)"),
    (400, "NotImplemented", "to a conditional write (If-Match, If-None-Match)"),
    (403, "AccessDenied", "may not be used"),
    (412, "PreconditionFailed", "another export has begun to write"),
];

fn s3_error(status: u16, code: &str) -> Reply {
    let body =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code></Error>");
    Reply::new(status, "application/xml", body)
}

/// A service with 59 ledgers.
fn stored() -> (Scene, Service) {
    let scene = Scene::new(9, 60);
    scene.settings("");
    scene.close_ledgers(2..=60);
    let service = scene.start();
    service.wait_until_stored(60);
    (scene, service)
}

fn export(scene: &Scene, server: &S3Server) -> Ran {
    let settings = format!("network = 'local'\n[export]\n{}\n", s3_settings(server));
    configure(scene.at(), &settings);
    run(scene.at(), &["export", "--config", "orrery.toml", "--data-dir", "d", "--json"])
}

#[test]
fn what_fails_for_a_moment_is_repeated() {
    let (scene, service) = stored();
    for (name, fault) in TROUBLES {
        let server = S3Server::start(Rights::Closed);
        let asked = AtomicU32::new(0);
        server.set_fault(move |request, honest| {
            fault(asked.fetch_add(1, Ordering::SeqCst), request, honest)
        });
        let ran = export(&scene, &server);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        server.clear_fault();
        assert_eq!(ran.json()["new_ledgers"], 59, "{name}");
        scene.assert_exported(&service, &lake_of(&server), 2, 60);
    }
    service.stop();
}

#[test]
fn what_is_refused_is_said_at_once() {
    let (scene, service) = stored();
    for (status, code, sentence) in REFUSALS {
        let server = S3Server::start(Rights::Closed);
        server.set_fault(move |request, honest| match request.method.as_str() {
            "PUT" => s3_error(status, code),
            _ => honest(),
        });
        let ran = export(&scene, &server);
        assert_eq!(ran.code, 1, "{sentence}");
        assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
        let tried = server.requests().iter().filter(|it| it.method == "PUT").count();
        assert_eq!(tried, 1, "{sentence}");
    }
    service.stop();
}
