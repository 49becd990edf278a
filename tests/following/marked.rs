//! Ledgers that are stored although they are not as their headers say (`trust.events`): whatever process
//! has stored them, they are listed, and never called bound or attested.

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::forged::Extent;
use orrery_testkit::lake_files::LakeFiles;
use serde_json::{Value, json};

use super::lying::{drop_event, honest, trusted, with_events};

const REPORT: &str = "events = 'report'\n";

#[test]
fn reported_ledgers_are_listed_and_not_attested() {
    let chain = honest(60);
    let lie = with_events(&chain, 30);
    let changed = chain.with_lie(lie, Extent::Nothing, &|ledger| {
        drop_event(ledger);
    });
    let lake = LakeFiles::with(&changed, 2..=60);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    configure(at, &format!("network = 'local'\n{}", trusted(REPORT)));
    let import = ["import", "--data-dir", "d", "--config", "orrery.toml", &lake.text()];
    run(at, &import).succeeded();

    let service = Service::local(at, &configure(at, &trusted(REPORT)));
    let listed = json!({ "ledgers": 1, "ranges": [{ "first_ledger": lie, "last_ledger": lie }] });
    let is_listed = |completeness: &Value| {
        assert_eq!(completeness["bound"]["invocation_events"], false, "{completeness}");
        assert_eq!(completeness["ranges"][0]["reported"], listed);
        assert_eq!(completeness["ranges"][0]["unproven"], json!({ "ledgers": 0, "ranges": [] }));
        assert_eq!(completeness["ranges"][0]["attested_ledger"], 57);
    };
    is_listed(&service.get("/rest/completeness"));
    let ledger = |sequence: u32| service.get(&format!("/rest/ledgers/{sequence}"));
    let of_lie = ledger(lie);
    assert_eq!((&of_lie["attested"], &of_lie["reported"]), (&json!(false), &json!(true)));
    assert_eq!(of_lie["attested_by"], Value::Null);
    let of_next = ledger(lie + 1);
    assert_eq!((&of_next["attested"], &of_next["reported"]), (&json!(true), &json!(false)));
    let detail = service.health()["components"]["attestation"]["detail"].to_string();
    assert!(detail.contains("not as their headers say"), "{detail}");
    assert!(service.metrics().contains("\norrery_marked_ledgers{mark=\"reported\"} 1\n"));
    let status = run(at, &["status", "--data-dir", "d"]).json();
    assert_eq!(status["covered"][0]["reported"], json!({ "ledgers": 1, "ranges": [[lie, lie]] }));
    service.stop();

    let verified = run(at, &["verify", "--data-dir", "d", "--config", "orrery.toml"]);
    let line = format!(
        "1 ledgers are not as their headers say, and are stored as trust.events says: {lie}"
    );
    assert!(verified.succeeded().contains(&line), "{}", verified.stdout);
    // It is kept where no raw ledger shows it.
    let without = format!("network = 'local'\n{}[retention]\nraw_ledgers = 0\n", trusted(REPORT));
    configure(at, &without);
    let import = ["import", "--data-dir", "e", "--config", "orrery.toml", &lake.text()];
    run(at, &import).succeeded();
    let verified = run(at, &["verify", "--data-dir", "e", "--config", "orrery.toml"]);
    assert!(verified.succeeded().contains(&line), "{}", verified.stdout);
}
