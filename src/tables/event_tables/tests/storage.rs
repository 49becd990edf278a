//! Tables of projects that record what their contracts hold: names, columns, and what they are for others.

use orrery_interfaces::names::OF_STORAGE;
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_testkit::specs::{Map, Type, event};
use orrery_testkit::values::{fields, symbol};
use serde_json::json;
use stellar_xdr::ScVal;

use super::{Known, Made, made, shown, tables};
use crate::event_tables::{Shapes, StorageChange};
use crate::export_types::PortableTable;
use crate::schema::SchemaLimits;

/// Events that are named as what a project has besides, of which one is not declared.
fn events() -> (Vec<Known>, Vec<Made>) {
    let declared = OF_STORAGE.map(|name| event(name, &[name], &[], Map, &[("n", Type::U32)]));
    let data = || fields([("n", ScVal::U32(1))]);
    let events = OF_STORAGE.iter().zip(0..).map(|(name, number)| {
        let by = (*name != "progress").then_some(0);
        made(number, by, &[symbol(name)], data())
    });
    (vec![Known::chain(1, declared[..3].to_vec())], events.collect())
}

#[test]
fn no_event_has_the_name_of_what_a_project_has_besides() {
    let (known, events) = events();
    let of = |mut shapes: Shapes| {
        for event in &events {
            event.add_to(&mut shapes, &known);
        }
        let stored = shapes.rows_since(&Shapes::default());
        let stored = stored.iter().map(|(key, value)| (&**key, value.as_deref().unwrap()));
        assert_eq!(Shapes::from_rows(stored).unwrap(), shapes);
        shapes.tables(SchemaLimits::default())
    };
    let (new, recording, earlier) =
        (of(Shapes::new(false, false)), of(Shapes::new(true, false)), of(Shapes::default()));
    let names = ["storage_changes", "storage", "storage_at", "progress", "undeclared"];
    assert_eq!(tables(&earlier), names);
    assert!(!earlier.schema().has_storage() && !new.schema().has_storage());
    let names = ["storage_changes_", "storage_", "storage_at_", "progress_", "undeclared"];
    assert_eq!(tables(&new), names);
    assert_eq!(tables(&recording), [&names[..], &["storage_changes"]].concat());
    assert!(recording.schema().has_storage());
    for (event, name) in events.iter().zip(names) {
        let rows = event.rows(&recording, &known);
        assert_eq!(rows.row.target, name);
        assert_eq!(shown(&recording, &rows.event)["name"], name);
    }
}

#[test]
fn a_change_is_a_row_of_which_queries_do_not_see_the_order() {
    let layout = Shapes::new(true, false).tables(SchemaLimits::default());
    let change = StorageChange {
        contract: ContractId([7; 32]),
        order: 3,
        key_name: Some("Balance".to_owned()),
        key_args: Some("[1]".to_owned()),
        key: Some(r#"["Balance",1]"#.to_owned()),
        value: None,
        change: "removed",
        durability: "persistent",
        live_until: None,
        key_hash: Hash32([5; 32]),
    };
    let emit = change.emit();
    assert_eq!(
        shown(&layout, &emit),
        json!({
            "key_name": "Balance",
            "key_args": [1],
            "key": ["Balance", 1],
            "value": null,
            "change": "removed",
            "durability": "persistent",
            "live_until": null,
            "key_hash": "05".repeat(32),
            "_order": 3,
        })
    );
    let table = layout.schema().table("storage_changes").unwrap();
    assert!(table.shown_columns().iter().all(|column| column.name != "_order"));
    let exported = PortableTable::new(table).unwrap().schema();
    assert!(exported.field_with_name("key_hash").is_ok());
    assert!(exported.field_with_name("_order").is_err());
}
