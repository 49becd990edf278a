//! A source that lies, beside an honest one. Validators of four organisations sign in turn, and three
//! of them must have signed.

use std::path::Path;

use ed25519_dalek::SigningKey;
use orrery_ledger::domain::NodeId;
use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::forged::{Extent, Ledger, forgers_key};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use serde_json::Value;

pub fn keys() -> Vec<SigningKey> {
    (1..=4).map(forgers_key).collect()
}

pub fn honest(last: u32) -> Chain {
    Chain::with_market(1, last).signed_by(&keys())
}

/// The settings `[trust]` with these validators.
pub fn trusted(more: &str) -> String {
    let organisations = keys().into_iter().enumerate().map(|(number, key)| {
        format!("'{number}.example' = ['{}']\n", NodeId(key.verifying_key().to_bytes()))
    });
    format!(
        "[trust]\nthreshold = 3\n{more}[trust.validators]\n{}",
        organisations.collect::<String>()
    )
}

/// Settings to follow `first`, and `second` where it fails.
pub fn settings(first: &LakeFiles, second: &LakeFiles, more: &str) -> String {
    format!(
        "[source]\nkind = 'lake'\npath = '{}'\ngaps = ['{}']\nstart = 'genesis'\n{}",
        first.text(),
        second.text(),
        trusted(more)
    )
}

pub fn follow(directory: &Path, settings: &str) -> Service {
    Service::local(directory, &configure(directory, settings))
}

/// Drops an event of the first invocation that has one. Returns whether there is one.
pub fn drop_event(ledger: &mut Ledger) -> bool {
    let Some((position, _)) = ledger.invocations().into_iter().find(|(_, events)| *events > 0)
    else {
        return false;
    };
    let mut events = ledger.events(position);
    events.pop();
    ledger.set_events(position, events);
    true
}

/// The first ledger from `sequence` on whose invocations have events.
pub fn with_events(chain: &Chain, sequence: u32) -> u32 {
    let has_events = |sequence: &u32| drop_event(&mut Ledger::read(chain.xdr(*sequence)).unwrap());
    (sequence..).find(has_events).unwrap()
}

/// A source whose newest ledger is a lie that the ledger itself does not show, beside an honest one.
pub struct AtTip {
    /// What the liar has.
    pub lying: Chain,
    pub liar: LakeFiles,
    pub other: LakeFiles,
}

impl AtTip {
    /// The lie is ledger `at` of an honest chain.
    pub fn lying(chain: &Chain, at: u32) -> Self {
        let lying = chain.with_lie(at, Extent::HeaderHash, &|ledger| {
            drop_event(ledger);
        });
        let (liar, other) = (LakeFiles::with(&lying, 2..=at), LakeFiles::with(chain, 2..=60));
        // It lacks a ledger, so that the other source is asked for it.
        liar.add(chain, at + 2);
        Self { lying, liar, other }
    }
}

/// What two stores with the same ledgers and events have in common.
pub fn content(service: &Service) -> Value {
    let answer = service.get("/rest/completeness");
    let ranges = answer["ranges"].as_array().unwrap().iter();
    ranges
        .map(|range| {
            serde_json::json!([range["first_ledger"], range["last_ledger"], range["digest"]])
        })
        .collect()
}

/// The content after an honest source was followed up to `last`, of which all up to `stored` is
/// stored.
fn honest_content(chain: &Chain, last: u32, stored: u32, more: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::with(chain, 2..=last);
    let service = follow(directory.path(), &settings(&lake, &lake, more));
    service.wait_until_stored(stored);
    content(&service)
}

#[test]
fn a_lie_that_one_ledger_shows_is_refused_and_another_source_is_used() {
    let chain = honest(60);
    let at = with_events(&chain, 30);
    let expected = honest_content(&chain, 60, 60, "");
    // Nothing made right, or all but the hash of the header.
    for extent in [Extent::Nothing, Extent::Invocations, Extent::Header] {
        let lying = chain.with_lie(at, extent, &|ledger| {
            drop_event(ledger);
        });
        let (liar, other) = (LakeFiles::with(&lying, 2..=60), LakeFiles::with(&chain, 2..=60));
        let directory = tempfile::tempdir().unwrap();
        let service = follow(directory.path(), &settings(&liar, &other, ""));
        service.wait_until_stored(60);
        assert_eq!(content(&service), expected, "{extent:?}");
        assert!(!service.metrics().contains("\norrery_ledgers_refused_total 0\n"));
        service.stop();
    }
}

#[test]
fn a_lie_at_the_tip_is_named_with_its_source_and_nothing_is_stored_on_top_of_it() {
    let chain = honest(60);
    let at = with_events(&chain, 40);
    let AtTip { liar, other, .. } = AtTip::lying(&chain, at);
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&liar, &other, ""));
    let health = service.wait_for_health("the lie is named", |health| {
        let reason = health["components"]["ingestion"]["reason"].to_string();
        health["service"] == "down" && reason.contains("signed ledger")
    });
    let reason = health["components"]["ingestion"]["reason"].to_string();
    for part in [
        &format!("which {}/", liar.text()),
        " delivered before",
        &format!("the stored ledger {at}"),
        &format!("which {}/", other.text()),
        " delivered, on top of",
        "one of the two sources is wrong",
        "import again what follows ledger",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert_eq!(health["service_latest_ledger"], at);
    // The liar goes on with its own ledgers.
    let forged = chain.forged(at, &|ledger| {
        drop_event(ledger);
    });
    (at..=60).for_each(|sequence| liar.add(&forged, sequence));
    let next = service.wait_for_health("it is asked again", |health| {
        health["components"]["source"]["detail"].to_string().contains(&liar.text())
    });
    assert_eq!(next["service_latest_ledger"], at);
    assert!(next["components"]["ingestion"]["reason"].to_string().contains("signed ledger"));
    service.stop();
}

#[test]
fn a_lie_at_the_tip_is_never_stored_where_attestation_is_required() {
    let chain = honest(60);
    let at = with_events(&chain, 40);
    let required = "require_attested = true\n";
    // The last three ledgers wait for the ones after them.
    let expected = honest_content(&chain, 60, 57, required);
    let AtTip { liar, other, .. } = AtTip::lying(&chain, at);
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&liar, &other, required));
    service.wait_until_stored(57);
    assert_eq!(content(&service), expected);
    service.stop();
    // What waited at the stop comes again.
    let longer = honest(70);
    (61..=70).for_each(|sequence| other.add(&longer, sequence));
    let service = follow(directory.path(), &settings(&other, &other, required));
    service.wait_until_stored(67);
    service.stop();
}

#[test]
fn a_chain_that_a_source_has_made_up_is_never_attested() {
    let chain = honest(170);
    let forged = chain.forged(30, &|ledger| {
        drop_event(ledger);
    });
    let (liar, other) = (LakeFiles::with(&forged, 2..=170), LakeFiles::with(&chain, 2..=170));
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&liar, &other, ""));
    service.wait_until_stored(170);
    let health = service.health();
    // The last three honest signatures are those of ledgers 27 to 29.
    assert_eq!(health["attested_ledger"], 26, "{health}");
    let detail = health["components"]["attestation"].to_string();
    assert!(detail.contains("26"), "{health}");
    service.stop();

    let required = "require_attested = true\n";
    let expected = honest_content(&chain, 170, 167, required);
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&liar, &other, required));
    service.wait_until_stored(167);
    assert_eq!(content(&service), expected);
    service.stop();
}

/// A contradiction by ledgers of another chain that the same validators have signed, as those of a
/// network before it was reset, ends as soon as the stored chain is attested further.
#[test]
fn another_chain_of_the_same_validators_does_not_stop_ingestion_for_long() {
    let chain = honest(60);
    let fork = Chain::with_market(2, 60).signed_by(&keys());
    let expected = honest_content(&chain, 60, 60, "");
    let (first, second) = (LakeFiles::with(&chain, 2..=40), LakeFiles::with(&fork, 2..=60));
    first.add(&chain, 42);
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&first, &second, ""));
    service.wait_for_health("the other chain contradicts", |health| {
        health["components"]["ingestion"]["reason"]
            .to_string()
            .contains("have signed ledgers 41 to")
    });
    (41..=60).for_each(|sequence| first.add(&chain, sequence));
    service.wait_until_stored(60);
    assert_eq!(content(&service), expected);
    service.stop();
}

/// Ledgers that validators have signed who are not trusted any more are attested by those above.
#[test]
fn older_ledgers_are_backfilled_where_attestation_is_required() {
    let chain = Chain::with_market(1, 400).signed_by(&[forgers_key(9)]).signed_from(340, &keys());
    let (live, archive) = (LakeFiles::with(&chain, 345..=400), LakeFiles::with(&chain, 2..=344));
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let required = "require_attested = true\n";
    let settings =
        settings(&live, &live, required).replace("start = 'genesis'", "start = 'oldest'");
    let service = follow(at, &settings);
    service.wait_until_stored(397);
    let source = archive.text();
    let backfill = [
        "backfill",
        "--data-dir",
        "d",
        "--from",
        "2",
        "--to",
        "344",
        "--source",
        &source,
        "--json",
    ];
    let report = run(at, &backfill).json();
    assert_eq!((&report["state"], &report["stored"]), (&"done".into(), &343.into()), "{report}");
    let ranges = service.get("/rest/completeness");
    assert_eq!(ranges["ranges"][0]["first_ledger"], 2);
    assert_eq!(ranges["ranges"].as_array().unwrap().len(), 1);
    service.stop();
}
