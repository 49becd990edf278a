//! Tables whose columns change, from version to version of a program and from emit to emit.

use orrery::domain::ContractId;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::engine_world::module;
use orrery_testkit::values::{fields, list, string, symbol};

fn request(program: &str, project: &str, contract: ContractId) -> Value {
    let contracts = [contract.to_string()];
    json!({ "code": built(program), "project_name": project, "contracts": contracts })
}

/// Arguments of a call of `record`.
fn recorded(id: u64, count: u32, amount: u64, note: u32) -> Vec<ScVal> {
    vec![ScVal::U64(id), ScVal::U32(count), ScVal::U64(amount), ScVal::U32(note)]
}

fn columns(owner: &Owner, table: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let columns = owner.query(&format!("describe {table}"));
    let pairs = columns.iter().map(|it| (text(&it["column_name"]), text(&it["column_type"])));
    let injected = ["contract_id", "transaction"];
    pairs.filter(|(name, _)| !name.starts_with('_') && !injected.contains(&name.as_str())).collect()
}

fn is(columns: &[(String, String)], expected: &[(&str, &str)]) {
    let found: Vec<_> = columns.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn views_follow_their_project_across_versions() {
    let mut chain = Chain::new();
    let journal = chain.create("evolving", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let query = "select * exclude (contract_id, transaction, _service_event_id, _ledger, \
                 _ledger_closed_at) from journal_journal_entry order by id";
    let mut id = 0;
    let mut run = |program: &str, number: u64| {
        let deployed = owner.post("deploy", &request(program, "journal", journal));
        assert_eq!(deployed["tables"], json!([format!("program_{number}_journal_entry")]));
        for note in 0..=2 {
            chain.call(journal, "record", recorded(id, 7 + note, 1 << 63, note));
            id += 1;
        }
        chain.import_into(&scene);
        owner.wait_for_rows("journal_journal_entry", 3);
        let found = (columns(&owner, "journal_journal_entry"), owner.query(query));
        let gone = owner.ask("DELETE", &format!("{number}"), None);
        assert_eq!(gone, (200, json!({ "deleted": number })));
        found
    };
    let (kinds, rows) = run("evolving_v1", 1);
    let first = [
        ("amount", "UBIGINT"),
        ("count", "UINTEGER"),
        ("gone", "VARCHAR"),
        ("id", "UBIGINT"),
        ("note", "UINTEGER"),
    ];
    is(&kinds, &first);
    let row = |id: u64, count: u32, note: u32| {
        let amount = (1_u64 << 63).to_string();
        json!({ "amount": amount, "count": count, "gone": "gone", "id": id, "note": note })
    };
    assert_eq!(rows, [row(0, 7, 0), row(1, 8, 1), row(2, 9, 2)]);

    let (kinds, rows) = run("evolving_v2", 2);
    let second = [
        ("added", "BOOLEAN"),
        ("amount", "HUGEINT"),
        ("count", "UBIGINT"),
        ("id", "UBIGINT"),
        ("note", "UINTEGER"),
    ];
    is(&kinds, &second);
    let row = |id: u64, count: u64, note: u32, added: Value| {
        let (amount, count) = (i128::MIN.to_string(), count << 32);
        json!({ "added": added, "amount": amount, "count": count, "id": id, "note": note })
    };
    let expected =
        [row(3, 7, 0, Value::Null), row(4, 8, 1, json!(true)), row(5, 9, 2, json!(false))];
    assert_eq!(rows, expected);

    let (kinds, rows) = run("evolving_v3", 3);
    let third = [
        ("added", "BOOLEAN"),
        ("amount", "HUGEINT"),
        ("count", "UBIGINT"),
        ("id", "UBIGINT"),
        ("note", "VARCHAR"),
    ];
    is(&kinds, &third);
    let row = |id: u64, count: u64, note: &str| {
        let amount = (-(1_i128 << 63)).to_string();
        json!({ "added": null, "amount": amount, "count": count, "id": id, "note": note })
    };
    assert_eq!(rows, [row(6, 7, "none"), row(7, 8, "some"), row(8, 9, "some")]);
}

#[test]
fn sql_keywords_and_short_names_work_as_table_names() {
    let mut chain = Chain::new();
    let journal = chain.create("evolving", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    for (number, program) in (1_u32..).zip(["evolving_names", "evolving_names_fast"]) {
        let deployed = owner.post("deploy", &request(program, program, journal));
        let tables: Vec<&str> = deployed["tables"]
            .as_array()
            .unwrap()
            .iter()
            .map(|table| {
                table.as_str().unwrap().split_once(&format!("program_{number}_")).unwrap().1
            })
            .collect();
        let mut sorted = tables.clone();
        sorted.sort_unstable();
        // `tick` does not occur in the data of the fast module: the code holds it as an encoded
        // symbol.
        let expected = [
            "http_entry",
            "longest_target_a_symbol_can_hold",
            "longest_target_a_symbol_can_holds",
            "never_emitted",
            "select",
            "swap_2_hop",
            "tick",
            "two_shapes",
        ];
        assert_eq!(sorted, expected, "{program}");
    }
    let first = chain.latest() + 1;
    chain.call(journal, "names", vec![ScVal::U32(40)]);
    chain.call(journal, "shapes", vec![ScVal::U64(u64::MAX)]);
    chain.import_into(&scene);
    for project in ["evolving_names", "evolving_names_fast"] {
        owner.wait_for_rows(&format!("{project}_two_shapes"), 2);
        let words = ["select", "order", "table", "from", "group", "end", "null", "user"];
        let row = (40..).zip(words).map(|(number, word)| (word.to_owned(), json!(number)));
        let row = Value::Object(row.collect());
        let words = words.map(|word| format!("\"{word}\"")).join(", ");
        assert_eq!(owner.query(&format!("select {words} from {project}_select")), [row]);
        let longest = format!(
            "select _0, the_longest_field_name_allowed t, x \
             from {project}_longest_target_a_symbol_can_hold"
        );
        assert_eq!(owner.query(&longest), [json!({ "_0": 40, "t": 40, "x": 40 })]);
        for (table, column) in [("http_entry", "status"), ("swap_2_hop", "hop"), ("tick", "at")] {
            let sql = format!("select \"{column}\" v from {project}_{table}");
            assert_eq!(owner.query(&sql), [json!({ "v": 40 })], "{sql}");
        }
        // Two structs with the same name: the table has the columns of both, with types wide enough
        // for both.
        let shapes = format!(
            "select amount, first, second from {project}_two_shapes order by first nulls last"
        );
        let expected = [
            json!({ "amount": 1, "first": 7, "second": null }),
            json!({ "amount": u64::MAX.to_string(), "first": null, "second": true }),
        ];
        assert_eq!(owner.query(&shapes), expected);
    }
    // When the contract continues and the program cannot, the run fails and leaves no rows.
    chain.call(journal, "too_long", Vec::new());
    chain.import_into(&scene);
    owner.wait("the failure is recorded", |it| it.get("1/status")["total_errors"] == 1);
    let status = owner.get("1/status");
    assert_eq!(status["last_error_ledger"], first + 2, "{status}");
    assert_eq!(owner.query("select count(*) n from evolving_names_never_emitted")[0]["n"], 0);
}

#[test]
fn structs_that_cannot_be_tables_are_refused_with_a_reason() {
    let mut chain = Chain::new();
    let journal = chain.create("evolving", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    for (program, words) in [
        ("evolving_injected", ["contract_id", "takes_our_column"]),
        ("evolving_same_column", ["amount", "Amount"]),
    ] {
        let (status, refusal) = owner.ask("POST", "deploy", Some(&request(program, "p", journal)));
        assert_eq!(status, 422, "{refusal}");
        let sentence = refusal["error"].as_str().unwrap();
        assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
    }
    // A module that emits nothing is rejected as a program.
    let (status, refusal) = owner.ask("POST", "deploy", Some(&request("evolving", "p", journal)));
    assert_eq!(status, 422);
    assert!(refusal["error"].as_str().unwrap().contains("emit"), "{refusal}");
    assert_eq!(owner.get("list"), json!([]));
}

/// A contract that exports the functions of `raw` and does nothing.
pub fn silent() -> Vec<u8> {
    module(
        r#"(memory (export "memory") 1)
           (func (export "emit") (param i64 i64) (result i64) (i64.const 2))
           (func (export "emit_all") (param i64) (result i64) (i64.const 2))
           (func (export "emit_words") (param i64 i64) (result i64) (i64.const 2))
           (func (export "_"))"#,
    )
}

#[test]
fn tables_without_a_specification_grow_or_the_run_fails() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let deployed = owner.post("deploy", &request("raw", "raw", contract));
    assert_eq!(deployed["tables"], json!([]));
    let emit = |value: ScVal| vec![symbol("t"), fields([("v", value)])];
    chain.call(contract, "emit", emit(ScVal::U32(7)));
    chain.call(contract, "emit", emit(ScVal::I64(i64::MIN)));
    chain.call(contract, "emit", emit(ScVal::from(i128::from(u64::MAX) << 1)));
    chain.call(contract, "emit", vec![symbol("T"), fields([("v", ScVal::U32(1))])]);
    chain.call(contract, "emit", emit(string("seven")));
    chain.call(contract, "emit", vec![symbol("t"), fields([("w", ScVal::Bool(true))])]);
    chain.call(contract, "emit", vec![symbol("t"), ScVal::U32(1)]);
    chain.call(contract, "emit", vec![ScVal::U32(1), fields([("v", ScVal::U32(1))])]);
    chain.call(contract, "emit", vec![symbol("t"), fields([("transaction", ScVal::U32(1))])]);
    // A run's rows are written all together or not at all.
    let pair = |target: &str, value: ScVal| list([symbol(target), fields([("v", value)])]);
    let both = list([pair("u", ScVal::U32(1)), pair("t", ScVal::Bool(true))]);
    chain.call(contract, "emit_all", vec![both]);
    let both = list([pair("u", ScVal::U32(1)), pair("u", ScVal::I32(-1))]);
    chain.call(contract, "emit_all", vec![both]);
    chain.call(contract, "emit_words", vec![ScVal::U64(255), ScVal::U64(u64::MAX)]);
    chain.import_into(&scene);
    owner.wait("all are run", |it| it.get("1/status")["total_executions"] == 12);
    let rows_of_u = json!({ "query": "select count(*) from raw_u" });
    owner.wait("the table comes", |it| it.ask("POST", "query", Some(&rows_of_u)).0 == 200);
    owner.wait_for_rows("raw_u", 2);
    is(&columns(&owner, "raw_t"), &[("v", "HUGEINT"), ("w", "BOOLEAN")]);
    is(&columns(&owner, "raw_u"), &[("v", "BIGINT")]);
    let rows = owner.query("select v, w from raw_t order by _ledger");
    let large = (i128::from(u64::MAX) << 1).to_string();
    let expected = [
        json!({ "v": 7, "w": null }),
        json!({ "v": i64::MIN.to_string(), "w": null }),
        json!({ "v": large, "w": null }),
        json!({ "v": null, "w": true }),
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        owner.query("select v from raw_u order by v"),
        [json!({ "v": -1 }), json!({ "v": 1 })]
    );
    let mut runs = owner.get("1/executions?limit=50").as_array().unwrap().clone();
    runs.reverse();
    let written: Vec<&Value> = runs.iter().map(|run| &run["rows_written"]).collect();
    assert_eq!(json!(written), json!([1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 2, 0]));
    for (run, words) in [
        (3, ["'T'", "'t'"]),
        (4, ["column 'v'", "expected HUGEINT and got VARCHAR"]),
        (8, ["transaction", "every table has"]),
        (9, ["column 'v'", "got BOOLEAN"]),
    ] {
        let message = runs[run]["error_message"].as_str().unwrap();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    for run in [3, 4, 6, 7, 8, 9, 11] {
        assert_eq!(runs[run]["status"], "error", "{}", runs[run]);
    }
}
