//! Tables of a project of events in real files: grown step by step they equal those that are built
//! at once, and views show versions together and one row per event.

use duckdb::Connection;
use orrery_interfaces::{Interface, Origin, declaration};
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq, Owner, ProgramId};
use orrery_tables::event_tables::{Declarations, Declared, Event, Layout, Place, Shapes};
use orrery_tables::schema::SchemaLimits;
use orrery_tables::{Change, Row, event_id};
use orrery_testkit::account_events::{account, address};
use orrery_testkit::specs::{
    Map, SingleValue, Type, event, map as map_of, option, structure, udt, union, vec,
};
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol, u128};
use serde_json::{Value, json};
use stellar_xdr::{MuxedEd25519Account, ScAddress, ScSpecEntry, ScVal, UInt256Parts, Uint256};

use super::support::{World, database, owner};

const ID: ProgramId = ProgramId(1);

/// A project of events, with all its events in the order in which they arrived.
pub struct Project {
    name: &'static str,
    interfaces: Vec<(Interface, Declarations)>,
    events: Vec<Arrived>,
    shapes: Shapes,
    /// Number of times that rows had to move.
    arrangement: u64,
}

struct Arrived {
    ledger: u32,
    /// Interface of the emitter at that ledger.
    by: Option<usize>,
    topics: Vec<ScVal>,
    data: ScVal,
}

impl Project {
    pub fn new(name: &'static str, interfaces: Vec<Vec<ScSpecEntry>>) -> Self {
        let known = |(id, entries): (u8, _)| {
            let interface = Interface::from_entries(entries).unwrap();
            let declarations = Declarations::new(Hash32([id; 32]), Origin::Chain, &interface);
            (interface, declarations)
        };
        let interfaces = (1..).zip(interfaces).map(known).collect();
        Self { name, interfaces, events: Vec::new(), shapes: Shapes::default(), arrangement: 0 }
    }

    pub fn add(&mut self, ledger: u32, by: Option<usize>, topics: &[ScVal], data: ScVal) {
        let before = self.layout();
        let arrived = Arrived { ledger, by, topics: topics.to_vec(), data };
        if let Some(by) = by {
            self.shapes.consult(&self.interfaces[by].1);
        }
        let mut shapes = std::mem::take(&mut self.shapes);
        self.with(&arrived, |event| shapes.add(event));
        self.shapes = shapes;
        self.arrangement += u64::from(!before.grows_into(&self.layout()));
        self.events.push(arrived);
    }

    fn with<T>(&self, arrived: &Arrived, then: impl FnOnce(&Event<'_>) -> T) -> T {
        let Arrived { ledger, by, topics, data } = arrived;
        let known = by.map(|by| &self.interfaces[by]);
        let interfaces: Vec<_> = known.iter().map(|(interface, _)| interface).collect();
        let matched = declaration(&interfaces, topics, data);
        let declared = match (&matched, known) {
            (Some(matched), Some((_, declarations))) => Declared::By(matched, declarations),
            _ => Declared::Nowhere,
        };
        let (place, contract) = (Place::new(LedgerSeq(*ledger), 1, 0), ContractId([7; 32]));
        then(&Event { place, id: (*ledger).into(), contract, topics, data, declared })
    }

    fn layout(&self) -> Layout {
        self.shapes.tables(SchemaLimits::default())
    }

    fn definition(&self) -> Change {
        let schema = self.layout().schema().clone().derived(self.arrangement);
        let project = self.name.to_owned();
        Change::Program { id: ID, project, own: true, schema }
    }

    /// The change with the rows of the events after the first `after`.
    fn rows(&self, after: u64) -> Change {
        let layout = self.layout();
        let mut rows = Vec::new();
        for arrived in &self.events[usize::try_from(after).unwrap()..] {
            let transaction = Hash32([u8::try_from(arrived.ledger % 251).unwrap(); 32]);
            let both = self.with(arrived, |event| layout.rows(event));
            for (number, emit) in (0..).zip([both.row, both.event]) {
                rows.push(Row {
                    emit,
                    transaction,
                    event_id: event_id(ID, &transaction, number),
                    ledger: LedgerSeq(arrived.ledger),
                    closed_at: CloseTime::Seconds(1_700_000_000 + u64::from(arrived.ledger)),
                });
            }
        }
        let up_to = self.events.len() as u64;
        Change::Rows { program: ID, after, up_to, rows: rows.into() }
    }

    /// Feeds the tables up to the last event. Returns how many of the events they had.
    pub fn feed(&self, world: &World, name: &str) -> u64 {
        let owner = owner(name);
        world.tables.watermarks(&owner).unwrap();
        world.tables.apply(&owner, vec![self.definition()]).unwrap();
        let after = world.tables.watermarks(&owner).unwrap()[&ID];
        world.tables.apply(&owner, vec![self.rows(after)]).unwrap();
        world.tables.set_complete(&owner).unwrap();
        after
    }
}

fn swap(column: &str, kind: Type) -> Vec<ScSpecEntry> {
    vec![event("swap", &["swap"], &[("who", Type::Address)], Map, &[(column, kind)])]
}

fn swapped(column: &str, value: ScVal) -> ([ScVal; 2], ScVal) {
    ([symbol("swap"), address(&account(1))], fields([(column, value)]))
}

#[test]
fn grown_tables_equal_rebuilt_ones() {
    let world = World::new();
    let mut project = Project::new(
        "demo",
        vec![
            swap("a", Type::U32),
            swap("a", Type::I128),
            swap("a", Type::String),
            swap("b", Type::U64),
        ],
    );
    let wide = ScVal::U256(UInt256Parts { hi_hi: u64::MAX, hi_lo: 1, lo_hi: 2, lo_lo: 3 });
    let odd = [symbol("odd")];
    // Each step with the number of events that the tables still have when it is fed.
    type Step<'a> = (u32, Option<usize>, (Vec<ScVal>, ScVal), u64);
    let of = |(topics, data): ([ScVal; 2], ScVal)| (topics.to_vec(), data);
    let steps: Vec<Step<'_>> = vec![
        (100, Some(0), of(swapped("a", ScVal::U32(1))), 0),
        // Wider in place.
        (101, Some(1), of(swapped("a", i128(i128::MIN))), 1),
        // A new table.
        (102, None, (odd.to_vec(), ScVal::U32(1)), 2),
        (103, Some(2), of(swapped("a", string("x\0\u{e9}"))), 3),
        (104, None, (odd.to_vec(), wide), 4),
        // No type holds both.
        (105, None, (odd.to_vec(), symbol("x")), 0),
        // A column before the last one stands behind it in the table, and is shown in its place.
        (106, Some(3), of(swapped("b", ScVal::U64(u64::MAX))), 6),
        (107, None, (vec![ScVal::U32(1)], list([bytes(b"\0")])), 7),
        // An earlier event of the chain takes the name.
        (50, Some(2), of(swapped("a", string("first"))), 0),
        (51, None, (odd.to_vec(), ScVal::U32(1)), 9),
    ];
    for (ledger, by, (topics, data), kept) in steps {
        project.add(ledger, by, &topics, data);
        assert_eq!(project.feed(&world, "grown"), kept, "{ledger}");
    }
    assert_eq!(project.feed(&world, "rebuilt"), 0);
    let digest = |name: &str| world.tables.digest(&owner(name)).unwrap();
    let cells = |name: &str| {
        let tables = ["swap", "swap_v1", "swap_v2", "odd", "undeclared", "events"];
        let tables = tables.map(|table| format!("demo.{table}"));
        tables.map(|table| world.rows(&owner(name), &format!("FROM {table}")))
    };
    assert_eq!(cells("grown"), cells("rebuilt"));
    assert_eq!(digest("grown"), digest("rebuilt"));
    let count = |table: &str| {
        let sql = format!("SELECT count(*) AS n FROM demo.{table}");
        world.rows(&owner("grown"), &sql)[0]["n"].as_u64().unwrap()
    };
    // The view over both versions, and those of each.
    let tables = ["events", "swap", "swap_v1", "swap_v2", "odd", "undeclared"];
    assert_eq!(tables.map(count), [10, 5, 3, 2, 4, 1]);
}

#[test]
fn views_show_versions_together_and_one_row_per_event() {
    let (world, alice) = (World::new(), owner("alice"));
    let mut project =
        Project::new("demo", vec![swap("a", Type::U32), swap("a", option(Type::String))]);
    for (ledger, by, (topics, data)) in [
        (100, 0, swapped("a", ScVal::U32(7))),
        (101, 1, swapped("a", string("x\"\u{e9}"))),
        (102, 1, swapped("a", ScVal::Void)),
    ] {
        project.add(ledger, Some(by), &topics, data);
    }
    project.add(103, None, &[string(b"\xffOdd")], ScVal::U32(1));
    project.add(104, None, &[], map([(ScVal::U32(1), string(b"\xff\0"))]));
    project.feed(&world, "alice");
    let who = account(1).to_string();
    let rows = world.rows(
        &alice,
        "SELECT _event_id, _declared, who, a, typeof(a) AS t, _rest FROM demo.swap ORDER BY ALL",
    );
    let row = |id: u64, a: Value| json!({"_event_id": id, "_declared": "chain", "who": who, "a": a, "t": "JSON", "_rest": null});
    assert_eq!(
        rows,
        json!([row(100, json!(7)), row(101, json!("x\"\u{e9}")), row(102, json!(null))])
    );
    assert_eq!(
        world.rows(&alice, "FROM retroshade.demo_swap ORDER BY ALL"),
        world.rows(&alice, "FROM demo.swap ORDER BY ALL")
    );
    for first in ["program_1_swap", "demo.swap_v1", "demo_swap_v1"] {
        let rows = world.rows(&alice, &format!("SELECT a, typeof(a) AS t FROM {first}"));
        assert_eq!(rows, json!([{"a": 7, "t": "UINTEGER"}]), "{first}");
    }
    let second = world.rows(&alice, "SELECT a FROM demo.swap_v2 ORDER BY _event_id");
    assert_eq!(second, json!([{"a": "x\"\u{e9}"}, {"a": null}]));
    let columns =
        world.rows(&alice, "SELECT column_name AS c, column_type AS t FROM (DESCRIBE demo.events)");
    let column = |name: &str, kind: &str| json!({"c": name, "t": kind});
    let expected = [
        column("_event_id", "UBIGINT"),
        column("ledger", "BIGINT"),
        column("ledger_closed_at", "TIMESTAMP"),
        column("contract_id", "VARCHAR"),
        column("name", "VARCHAR"),
        column("params", "JSON"),
    ];
    assert_eq!(columns, json!(expected));
    let rows =
        world.rows(&alice, "SELECT _event_id, ledger, name, params FROM demo.events ORDER BY 1");
    let row = |id: u64, name: Value, params: Value| json!({"_event_id": id, "ledger": id, "name": name, "params": params});
    let expected = json!([
        row(100, json!("swap"), json!({"who": who, "a": 7})),
        row(101, json!("swap"), json!({"who": who, "a": "x\"\u{e9}"})),
        row(102, json!("swap"), json!({"who": who, "a": null})),
        row(103, json!("odd"), json!(null)),
        row(104, json!(null), json!(null)),
    ]);
    assert_eq!(rows, expected);
    let undeclared = world.rows(&alice, "SELECT topics, data, reason FROM demo.undeclared");
    let data = json!({"map": [{"key": {"u32": 1}, "val": {"string": "\\xff\\0"}}]});
    let reason = "no interface declares the event, and its first topic is no text";
    assert_eq!(undeclared, json!([{"topics": [], "data": data, "reason": reason}]));
    let listed =
        world.rows(&alice, "SELECT count(*) AS n FROM (SHOW ALL TABLES) WHERE schema = 'demo'");
    // Both versions of the event, and the view over them.
    assert_eq!(listed, json!([{"n": 6}]));
    // Nothing of another project can be read in this way.
    assert!(world.try_rows(&alice, "FROM other.events").is_err());
}

#[test]
fn every_value_comes_back_from_sql() {
    let (world, alice) = (World::new(), owner("alice"));
    let params = [
        ("n", Type::U256),
        ("m", Type::MuxedAddress),
        ("s", Type::String),
        ("o", option(Type::U128)),
        ("c", udt("Case")),
        ("l", vec(Type::I128)),
    ];
    let entries = vec![
        event("every", &["every"], &[], Map, &params),
        event("deep", &["deep"], &[], SingleValue, &[("v", Type::Val)]),
        union("Case", &[("A".to_owned(), None)]),
    ];
    let mut project = Project::new("demo", vec![entries]);
    let n = UInt256Parts { hi_hi: u64::MAX, hi_lo: u64::MAX, lo_hi: u64::MAX, lo_lo: u64::MAX };
    let muxed = ScAddress::MuxedAccount(MuxedEd25519Account { id: 3, ed25519: Uint256([7; 32]) });
    let data = fields([
        ("n", ScVal::U256(n.clone())),
        ("m", ScVal::Address(muxed.clone())),
        ("s", string(b"a\0b\xff")),
        ("o", ScVal::Void),
        ("c", list([symbol("A")])),
        ("l", list([i128(i128::MAX), i128(-1)])),
        ("more", map([(ScVal::U32(1), string(b"\0"))])),
    ]);
    project.add(100, Some(0), &[symbol("every")], data);
    let deep = (0..400).fold(ScVal::U32(1), |of, _| list([of]));
    project.add(101, Some(0), &[symbol("deep")], deep);
    project.feed(&world, "alice");
    let row = world.rows(&alice, "SELECT n, m, s, o, c, l, _rest FROM demo.every");
    let expected = json!([{
        "n": n.to_string(), "m": muxed.to_string(), "s": "a\0b\\xff", "o": null,
        "c": {"vec": [{"symbol": "A"}]}, "l": [i128::MAX.to_string(), -1],
        "_rest": {"keys": {"more": [[1, "\0"]]}},
    }]);
    assert_eq!(row, expected);
    let levels = "len(v::VARCHAR) - len(replace(v::VARCHAR, '[', ''))";
    let row = world.rows(&alice, &format!("SELECT {levels} AS n FROM demo.deep"));
    assert_eq!(row, json!([{"n": 400}]));
    let params = "SELECT len(params::VARCHAR) AS n FROM demo.events WHERE name = 'deep'";
    assert_eq!(world.rows(&alice, params), json!([{"n": 400 * 2 + 1 + "{\"v\":}".len()}]));
}

/// Two versions of a column whose types do not join, and one whose types do.
#[test]
fn a_view_over_versions_shows_values_of_all_types() {
    let world = World::new();
    let texts = |fields: &[(&str, Type)]| -> Vec<(String, Type)> {
        fields.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect()
    };
    let inner = structure("S", &texts(&[("x", Type::Bytes), ("y", Type::U128)]));
    let of = |kind: Type, n: Type| {
        let swap = event("swap", &["swap"], &[], Map, &[("a", kind), ("n", n)]);
        vec![swap, inner.clone()]
    };
    let in_struct = fields([("x", bytes(b"\0\xff")), ("y", u128(u128::MAX))]);
    let typed = json!({"vec": [{"u32": 1}, {"symbol": "x"}]});
    let pairs = [
        (Type::Bytes, bytes(b"abc"), json!("abc")),
        (Type::Bool, ScVal::Bool(true), json!(true)),
        (Type::U128, u128(7), json!("7")),
        (vec(Type::I64), list([ScVal::I64(i64::MIN)]), json!([i64::MIN.to_string()])),
        (vec(Type::String), list([string("a\u{e9}")]), json!(["a\u{e9}"])),
        (map_of(Type::Symbol, Type::U32), map([(symbol("k"), ScVal::U32(1))]), json!({"k": 1})),
        (Type::Val, list([ScVal::U32(1), symbol("x")]), typed),
        (udt("S"), in_struct, json!({"x": "\\x00\\xFF", "y": u128::MAX.to_string()})),
    ];
    for (number, (kind, value, shown)) in pairs.into_iter().enumerate() {
        let name = format!("owner{number}");
        let mut project =
            Project::new("demo", vec![of(Type::Address, Type::U32), of(kind, Type::I128)]);
        let data = |a, n| fields([("a", a), ("n", n)]);
        let who = address(&account(1));
        project.add(100, Some(0), &[symbol("swap")], data(who, ScVal::U32(1)));
        project.add(101, Some(1), &[symbol("swap")], data(value, i128(-1)));
        project.feed(&world, &name);
        let sql = "SELECT a, n, typeof(n) AS t FROM demo.swap ORDER BY _event_id";
        let rows = world.rows(&owner(&name), sql);
        let row = |a: Value, n: i64| json!({"a": a, "n": n, "t": "HUGEINT"});
        assert_eq!(rows, json!([row(json!(account(1).to_string()), 1), row(shown, -1)]));
    }
}

/// What of the tables queries may see.
fn seen(world: &World, alice: &Owner) -> Value {
    let shown = world.rows(alice, "SHOW TABLES");
    let names = shown.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
    let content = |name: &str| {
        let columns = world.rows(alice, &format!("SELECT column_name FROM (DESCRIBE {name})"));
        json!([name, columns, world.rows(alice, &format!("FROM {name} ORDER BY ALL"))])
    };
    names.map(content).collect()
}

/// Columns that came later stand at the end of the stored tables, which have names of their own. Earlier
/// versions stored the tables under the names that queries use.
#[test]
fn stored_tables_are_shown_by_views_alone() {
    let (mut world, alice) = (World::new(), owner("alice"));
    let mut project = Project::new("demo", vec![swap("a", Type::U32), swap("b", Type::U64)]);
    let (topics, data) = swapped("a", ScVal::U32(7));
    project.add(100, Some(0), &topics, data);
    project.feed(&world, "alice");
    let (topics, data) = swapped("b", ScVal::U64(8));
    project.add(101, Some(1), &topics, data);
    assert_eq!(project.feed(&world, "alice"), 1, "the table grows");
    let before = seen(&world, &alice);
    assert!(!before.to_string().contains(".rows"), "{before}");
    let columns = world.rows(&alice, "SELECT column_name AS c FROM (DESCRIBE program_1_swap)");
    let shown: Vec<&str> =
        columns.as_array().unwrap().iter().map(|row| row["c"].as_str().unwrap()).collect();
    assert_eq!((&shown[..3], shown[shown.len() - 2]), (&["who", "a", "b"][..], "_rest"));
    for name in ["program_1_swap.rows", "program_1_events.rows"] {
        for from in [format!("\"{name}\""), format!("retroshade.\"{name}\"")] {
            assert!(world.try_rows(&alice, &format!("FROM {from}")).is_err(), "{from}");
        }
    }
    world.tables.close();
    let connection = Connection::open(database(&world.tables, &alice)).unwrap();
    let names = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        names.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let views = "SELECT format('DROP VIEW \"{}\".\"{}\"', schema_name, view_name)
        FROM duckdb_views() WHERE NOT internal";
    let renames = "SELECT format('ALTER TABLE retroshade.\"{}\" RENAME TO \"{}\"', table_name,
        replace(table_name, '.rows', '')) FROM duckdb_tables() WHERE table_name LIKE '%.rows'";
    let (views, renames) = (names(views), names(renames));
    assert!(views.len() > 6 && renames.len() == 3, "{views:?} {renames:?}");
    views.iter().chain(&renames).for_each(|sql| connection.execute_batch(sql).unwrap());
    connection.execute_batch("UPDATE orrery.views SET rule = 2; CHECKPOINT").unwrap();
    drop(connection);
    world.reopen();
    assert_eq!(seen(&world, &alice), before);
    // Rows go on where they were.
    let (topics, data) = swapped("a", ScVal::U32(9));
    project.add(102, Some(0), &topics, data);
    assert_eq!(project.feed(&world, "alice"), 2);
    assert_eq!(world.rows(&alice, "SELECT count(*) AS n FROM demo.swap"), json!([{"n": 3}]));
    assert_eq!(world.rows(&alice, "SELECT count(*) AS n FROM demo.events"), json!([{"n": 3}]));
}
