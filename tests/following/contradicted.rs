//! Contradictions: what shows one, and that it outlives the process that has found it.

use std::path::Path;
use std::sync::Arc;

use orrery::domain::{LedgerSeq, NodeId, Origin, RawLedger};
use orrery::pipeline::{Contradiction, Pipeline, PipelineError, StepObserver, Trust};
use orrery::store::{Durability, IndexOptions, Store};
use orrery::validators::{Organisation, Unattested, Validators};
use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::forged::{Extent, Ledger, forgers_key, hash};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::signal::Signal;
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use stellar_xdr::ScVal;

use super::lying::{AtTip, follow, honest, keys, settings, trusted, with_events};

pub struct Unobserved;

impl StepObserver for Unobserved {
    fn step(&self, _: &'static str, _: f64) {}
}

pub fn validators() -> Arc<Validators> {
    let organisation = |(number, key): (usize, ed25519_dalek::SigningKey)| Organisation {
        name: format!("{number}.example"),
        validators: vec![NodeId(key.verifying_key().to_bytes())],
    };
    let organisations = keys().into_iter().enumerate().map(organisation).collect();
    Arc::new(Validators::new(organisations, 3).unwrap())
}

/// The newest attested ledger of the newest range of a store.
pub fn newest_attested(store: &Store) -> Result<LedgerSeq, Unattested> {
    let (range, signed) = store.newest_signed().unwrap();
    validators().attested(range, &signed)
}

fn pipeline(directory: &Path, chain: &Chain, last: u32) -> (Arc<Store>, Pipeline) {
    pipeline_trusting(validators(), directory, chain, last)
}

fn pipeline_trusting(
    validators: Arc<Validators>,
    directory: &Path,
    chain: &Chain,
    last: u32,
) -> (Arc<Store>, Pipeline) {
    let store = Arc::new(Store::open(directory, Some(&chain.network)).unwrap());
    let trust = Trust { validators: Some(validators), ..Trust::default() };
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    let pipeline =
        Pipeline::new(Arc::clone(&store), options, Arc::new(Unobserved)).with_trust(trust);
    let ledgers = (2..=last).map(|sequence| chain.xdr(sequence).to_vec());
    deliver(&pipeline, "honest", ledgers.collect()).unwrap();
    (store, pipeline)
}

pub fn deliver(
    pipeline: &Pipeline,
    name: &str,
    ledgers: Vec<Vec<u8>>,
) -> Result<(), PipelineError> {
    deliver_with(pipeline, name, ledgers, Durability::Synced)
}

pub fn deliver_with(
    pipeline: &Pipeline,
    name: &str,
    ledgers: Vec<Vec<u8>>,
    durability: Durability,
) -> Result<(), PipelineError> {
    let ledgers = ledgers.into_iter().map(|xdr| {
        let sequence = orrery::domain::sequence_of(&xdr).unwrap();
        let origin = Origin { name: name.into(), position: None };
        Ok::<_, std::io::Error>(RawLedger { sequence, xdr, compressed: None, origin })
    });
    let stored = |_: &_| std::ops::ControlFlow::Continue(());
    pipeline.run(ledgers, durability, stored)
}

/// A genuine ledger under another number, with something else changed perhaps. Its signature stays
/// valid, because that covers neither.
fn renumbered(raw: &[u8], sequence: u32, rng: &mut StdRng) -> Ledger {
    let mut ledger = Ledger::read(raw).unwrap();
    let header = &mut ledger.header.header;
    header.ledger_seq = sequence;
    match rng.random_range(0..4) {
        0 => header.bucket_list_hash = hash(&ScVal::U32(rng.random())),
        1 => header.total_coins += 1,
        _ => {}
    }
    ledger.header.hash = hash(&ledger.header.header);
    ledger
}

/// 2,000 made-up ledgers, 10,000 at full size, beside an honest chain of which the newest ledgers are
/// not attested: genuine signatures of all validators on ledgers with other numbers, and what a forger
/// can make follow them. None shows a contradiction, and none is attested.
#[test]
fn made_up_ledgers_never_contradict_an_honest_chain() {
    const STORED: u32 = 40;
    let chain = honest(60);
    let directory = tempfile::tempdir().unwrap();
    let (store, pipeline) = pipeline(directory.path(), &chain, STORED);
    assert_eq!(newest_attested(&store), Ok(LedgerSeq(STORED - 3)));
    let mut rng = StdRng::seed_from_u64(52);
    let genuine: Vec<u32> = (2..=60).filter(|sequence| *sequence != STORED + 1).collect();
    for case in 0..size::choose(2_000, 10_000) {
        let number = *genuine.choose(&mut rng).unwrap();
        let first = renumbered(chain.xdr(number), STORED + 1, &mut rng);
        let mut made = vec![first.encode()];
        let mut before = first.header.hash;
        for after in 0..rng.random_range(0..3) {
            // A set that follows the made-up ledger has another hash than the one that was signed.
            let number = *genuine.choose(&mut rng).unwrap();
            let mut next = renumbered(chain.xdr(number), STORED + 2 + after, &mut rng);
            if rng.random() {
                next.link_to(&before);
                let key = forgers_key(100 + rng.random_range(0..100));
                next.make_right(Extent::Signature, chain.network.id(), &key);
            }
            before = next.header.hash.clone();
            made.push(next.encode());
        }
        let error = deliver(&pipeline, "forger", made).unwrap_err();
        let is_contradiction = matches!(error, PipelineError::Contradicted(_));
        assert!(!is_contradiction, "case {case}, ledger {number}: {error}");
        assert_eq!(Contradiction::of(&store, Some(&validators())), None, "case {case}");
        assert_eq!(store.ends().latest, Some(LedgerSeq(STORED)), "case {case}");
    }
    // The honest ones go on at once.
    let rest = (STORED + 1..=60).map(|sequence| chain.xdr(sequence).to_vec());
    deliver(&pipeline, "honest", rest.collect()).unwrap();
    assert_eq!(newest_attested(&store), Ok(LedgerSeq(57)));
}

/// The signatures of two organisations in one chain are a contradiction, and not before. The words name
/// both sources, and blame neither.
#[test]
fn two_organisations_in_one_chain_show_a_contradiction() {
    let chain = honest(60);
    let lying = chain.with_lie(40, Extent::HeaderHash, &|ledger| {
        ledger.header.header.total_coins += 1;
    });
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (store, pipeline) = pipeline(at, &lying, 40);
    let error = deliver(&pipeline, "second", vec![chain.xdr(41).to_vec()]).unwrap_err();
    assert!(matches!(error, PipelineError::Store { .. }), "one alone is refused: {error}");
    assert_eq!(store.contradiction(), None);
    let both = [41, 42].map(|sequence| chain.xdr(sequence).to_vec());
    let error = deliver(&pipeline, "second", both.to_vec()).unwrap_err();
    let PipelineError::Contradicted(found) = error else { panic!("{error}") };
    assert_eq!((found.first, found.last, found.signers.len()), (41, 42, 2));
    assert_eq!((&*found.origin, found.delivered.as_deref()), ("second", Some("honest")));
    let text = found.to_string();
    assert!(text.contains("one of the two sources is wrong, or the network was reset"), "{text}");
    // Every later process knows.
    drop((pipeline, store));
    let (store, pipeline) = pipeline_again(at, &lying);
    assert_eq!(Contradiction::of(&store, Some(&validators())), Some(*found));
    let forged = lying.forged(41, &|_| ());
    let next = (41..=50).map(|sequence| forged.xdr(sequence).to_vec());
    deliver(&pipeline, "liar", next.collect()).unwrap_err();
    assert_eq!(store.ends().latest, Some(LedgerSeq(40)), "nothing of the liar's is stored");
}

fn pipeline_again(directory: &Path, chain: &Chain) -> (Arc<Store>, Pipeline) {
    pipeline(directory, chain, 1)
}

/// Whoever is trusted need not have signed the very next ledger.
#[test]
fn a_contradiction_may_begin_with_a_ledger_that_nobody_trusted_has_signed() {
    let chain = honest(60);
    let lying = chain.with_lie(40, Extent::HeaderHash, &|ledger| {
        ledger.header.header.total_coins += 1;
    });
    let mut organisations = validators().organisations().to_vec();
    organisations.remove(41 % keys().len());
    let trusted = Arc::new(Validators::new(organisations, 2).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let (store, pipeline) = pipeline_trusting(Arc::clone(&trusted), directory.path(), &lying, 40);
    let next = |last| (41..=last).map(|sequence| chain.xdr(sequence).to_vec()).collect();
    let refused = deliver(&pipeline, "second", next(42)).unwrap_err();
    assert!(matches!(refused, PipelineError::Store { .. }), "one organisation: {refused}");
    let found = deliver(&pipeline, "second", next(43)).unwrap_err();
    assert!(matches!(found, PipelineError::Contradicted(_)), "{found}");
    assert!(Contradiction::of(&store, Some(&trusted)).is_some());
}

/// Who makes up the stored ledger chooses its time, too: the network's next ledgers contradict it also if
/// they closed before.
#[test]
fn a_lie_with_a_later_time_is_contradicted() {
    let chain = honest(60);
    for attested in [Some(36), None] {
        let lie = if attested.is_some() { 40 } else { 3 };
        let lying = chain.with_lie(lie, Extent::Signature, &|ledger| {
            ledger.header.header.scp_value.close_time.0 += 1_000_000;
        });
        let directory = tempfile::tempdir().unwrap();
        let (store, pipeline) = pipeline(directory.path(), &lying, lie);
        assert_eq!(newest_attested(&store).ok(), attested.map(LedgerSeq));
        let next = [lie + 1, lie + 2].map(|sequence| chain.xdr(sequence).to_vec());
        let error = deliver(&pipeline, "second", next.to_vec()).unwrap_err();
        assert!(matches!(error, PipelineError::Contradicted(_)), "{error}");
    }
}

/// After a kill the service still stores nothing that is not attested, and says why.
#[test]
fn a_contradiction_outlives_the_process_that_found_it() {
    let chain = honest(60);
    let at = with_events(&chain, 40);
    let AtTip { lying, liar, other } = AtTip::lying(&chain, at);
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(&liar, &other, "");
    let service = follow(directory.path(), &settings);
    let is_named = |health: &Value| {
        let of = |name: &str| health["components"][name]["reason"].to_string();
        health["service"] == "down"
            && of("attestation").contains("one of the two sources is wrong")
            && of("ingestion").contains("one of the two sources is wrong")
    };
    service.wait_for_health("the lie is named", is_named);
    service.end_with(Signal::KILL);
    // From now on only the liar answers.
    let forged = lying.forged(at + 1, &|_| ());
    (at + 1..=60).for_each(|sequence| liar.add(&forged, sequence));
    (at + 1..=60).for_each(|sequence| other.remove(sequence));
    let service = follow(directory.path(), &settings);
    service.wait_for_health("it is named again", is_named);
    let status = || run(directory.path(), &["status", "--data-dir", "d"]).json();
    wait_until("the liar's ledgers wait", || {
        let waiting = status()["attestation"]["waiting"].clone();
        (waiting == serde_json::json!([[at + 1, 60]])).then_some(())
    });
    assert_eq!(service.health()["service_latest_ledger"], at);
    service.stop();
    let stopped = status();
    assert_eq!(stopped["latest_ledger"], at);
    let down = stopped["down"].to_string();
    assert!(down.contains("one of the two sources is wrong"), "{down}");
}

/// A service without a source learns of it from an import, and says so.
#[test]
fn a_contradiction_that_an_import_finds_is_in_health() {
    let chain = honest(60);
    let lying = chain.with_lie(40, Extent::HeaderHash, &|ledger| {
        ledger.header.header.total_coins += 1;
    });
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::local(at, &configure(at, &trusted("")));
    let (first, second) = (LakeFiles::with(&lying, 2..=40), LakeFiles::with(&chain, 41..=60));
    let import = |lake: &LakeFiles| run(at, &["import", "--data-dir", "d", &lake.text()]);
    import(&first).succeeded();
    import(&second)
        .refuses(1, &["have signed ledgers 41 to 42", "one of the two sources is wrong"]);
    let health = service.health();
    assert_eq!(health["service"], "down", "{health}");
    let reason = health["components"]["attestation"]["reason"].to_string();
    assert!(reason.contains("have signed ledgers 41 to 42"), "{reason}");
    assert_eq!(service.ask("/rest/health/ready", None).0, 503);
    service.stop();
}

/// One made-up ledger of the second source, while the first one fails, stops nothing: the service is not
/// down because of it, and goes on as soon as the first source does.
#[test]
fn one_made_up_ledger_of_a_second_source_accuses_nobody() {
    let chain = honest(60);
    let mut rng = StdRng::seed_from_u64(1);
    let (first, second) = (LakeFiles::with(&chain, 2..=40), LakeFiles::with(&chain, 2..=40));
    first.add(&chain, 42);
    let made = renumbered(chain.xdr(48), 41, &mut rng).encode();
    second.add_xdr(41, &made);
    let directory = tempfile::tempdir().unwrap();
    let service = follow(directory.path(), &settings(&first, &second, ""));
    let health = service.wait_for_health("the made-up ledger waits", |health| {
        health["components"]["attestation"]["detail"].to_string().contains("41 to 41 have arrived")
    });
    assert_ne!(health["components"]["ingestion"]["status"], "down", "{health}");
    assert_eq!(health["components"]["attestation"]["status"], "up", "{health}");
    (41..=60).for_each(|sequence| first.add(&chain, sequence));
    let health = service.wait_until_stored(60);
    assert_eq!(health["attested_ledger"], 57);
    assert!(!health.to_string().contains("is wrong"), "{health}");
    service.stop();
}
