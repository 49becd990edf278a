//! Imports where only attested ledgers are stored: what waits at the end of one batch goes on with the
//! next, beside a running service as without one.

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use serde_json::Value;

use super::lying::{content, keys, trusted};

const REQUIRED: &str = "require_attested = true\n";

#[test]
fn an_import_beside_a_service_goes_to_its_end() {
    let chain = Chain::made(3, 200).signed_by(&keys());
    let lake = LakeFiles::with(&chain, 2..=200);
    let import = |at: &std::path::Path| {
        let ran = run(at, &["import", "--data-dir", "d", "--config", "orrery.toml", &lake.text()]);
        // Three of four organisations have to sign after a ledger.
        ran.refuses(1, &["ledgers 198 to 200 are not stored", "no ledgers after them attest them"]);
        ran
    };
    let alone = tempfile::tempdir().unwrap();
    configure(alone.path(), &format!("network = 'local'\n{}", trusted(REQUIRED)));
    import(alone.path());
    let service = Service::local(alone.path(), &configure(alone.path(), &trusted(REQUIRED)));
    let expected: Value = content(&service);
    assert_eq!(expected[0][1], 197);
    service.stop();

    let beside = tempfile::tempdir().unwrap();
    let at = beside.path();
    let service = Service::local(at, &configure(at, &trusted(REQUIRED)));
    let ran = import(at);
    assert!(ran.stderr.contains("the 196 ledgers before it are stored"), "{}", ran.stderr);
    assert_eq!(content(&service), expected);
    // What waited is not lost: the same files and more are imported on top.
    let longer = LakeFiles::with(&Chain::made(3, 210).signed_by(&keys()), 198..=210);
    let ran = run(at, &["import", "--data-dir", "d", &longer.text()]);
    ran.refuses(1, &["ledgers 208 to 210 are not stored"]);
    assert_eq!(content(&service)[0][1], 207);
    service.stop();
}

/// A ledger that breaks the chain between two batches is named with its file.
#[test]
fn a_break_among_ledgers_that_wait_is_named_with_its_file() {
    let chain = Chain::made(3, 80).signed_by(&keys());
    let other = Chain::made(4, 80).signed_by(&keys());
    let lake = LakeFiles::with(&chain, 2..=33);
    (34..=80).for_each(|sequence| lake.add(&other, sequence));
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let service = Service::local(at, &configure(at, &trusted(REQUIRED)));
    let ran = run(at, &["import", "--data-dir", "d", &lake.text()]);
    ran.refuses(1, &["--34.xdr.zst: ledger 34 links to"]);
    assert_eq!(content(&service)[0][1], 30);
    service.stop();
}
