//! What a tenant supplies, and what follows from the events of strangers, costs what it is worth: memory
//! and stored bytes are bounded, and go with the project.

use orrery_testkit::size;
use serde_json::{Value, json};

use super::events_world::WORLDS;
use super::*;
use crate::events::{DeclaredBy, OfProject};
use crate::registry::Watch;
use orrery_store::SharedRow;

/// The memory of one owner, and of a 2 MiB interface, in bytes.
const MOST_OF_OWNER: usize = 8 << 20;
const MOST_OF_ONE: usize = 32 << 20;

fn owner(name: &str) -> Owner {
    Owner(name.to_owned())
}

/// The JSON of an interface of up to 2 MiB: an event, and as many structs as fit.
fn interface(number: usize, bytes: usize) -> Vec<u8> {
    let field = |at: usize| json!({ "doc": "", "name": format!("f{at}"), "type_": "u32" });
    let structure = |at: usize| {
        json!({ "udt_struct_v0": {
            "doc": "",
            "lib": "",
            "name": format!("S{number}x{at}"),
            "fields": (0..40).map(field).collect::<Vec<_>>(),
        } })
    };
    let one = structure(1_000).to_string().len() + 1;
    let entries: Vec<Value> = (0..bytes / one).map(structure).collect();
    let json = serde_json::to_vec(&entries).unwrap();
    assert!(json.len() <= bytes && json.len() > bytes / 2);
    json
}

impl Parts {
    fn supply(
        &self,
        owner: &Owner,
        name: &str,
        supplied: Vec<u8>,
    ) -> Result<ProgramId, ProgramError> {
        let watch = Watch {
            project_name: name.to_owned(),
            contracts: vec![NOBODYS],
            selectors: Default::default(),
            supplied: Some(supplied),
            from: None,
            storage: None,
            public: None,
            replace: Replace::No,
        };
        Ok(self.registry.watch(owner, watch, 1)?.id)
    }
}

/// Small: 8 interfaces of 256 KiB; full: 512 of 2 MiB.
#[test]
fn the_memory_of_supplied_interfaces_is_bounded_and_goes_with_their_projects() {
    let choose = |small, full| usize::try_from(size::choose(small, full)).unwrap();
    let (count, bytes) = (choose(8, 512), choose(256 << 10, 2 << 20));
    let settings = settings::Programs {
        owner_programs: u32::try_from(count).unwrap().try_into().unwrap(),
        ..Default::default()
    };
    let scene = Scene::with(settings, None);
    for name in ["mallory", "alice"] {
        let owner = owner(name);
        let mut ids = Vec::new();
        for number in 0..count {
            let name = format!("{name}{number}");
            ids.push(scene.supply(&owner, &name, interface(number, bytes)).unwrap());
            let held = scene.registry.supplied.bytes();
            assert!(held > 0 && held <= MOST_OF_OWNER.max(MOST_OF_ONE), "{held} bytes");
        }
        // Those of one owner only: the other has deleted its own.
        assert!(scene.registry.supplied.bytes() > bytes);
        for id in ids {
            scene.registry.delete(&owner, id).unwrap();
        }
        assert_eq!(scene.registry.supplied.bytes(), 0);
    }
}

#[test]
fn an_owner_takes_no_memory_from_another() {
    let scene = Scene::with(
        settings::Programs { owner_programs: nonzero!(64), ..Default::default() },
        None,
    );
    let alice = scene.supply(&owner("alice"), "own", interface(0, 64 << 10)).unwrap();
    let before = scene.registry.supplied.bytes();
    for number in 0..24 {
        let interface = interface(number, 256 << 10);
        scene.supply(&owner("mallory"), &format!("m{number}"), interface).unwrap();
    }
    assert!(scene.registry.supplied.bytes() <= before + MOST_OF_OWNER);
    assert!(scene.registry.supplied.get(alice).is_some());
}

/// A piece of work reads the interface of its project once, although other projects of the owner have
/// taken its place in memory.
#[test]
fn projects_of_one_owner_do_not_make_each_other_read_interfaces_again() {
    let scene = Scene::new();
    let owner = owner("mallory");
    let ids = [0, 1].map(|number| {
        // As much memory as an owner may have, each.
        scene.supply(&owner, &format!("m{number}"), interface(number, 2 << 20)).unwrap()
    });
    let of = ids.map(|id| OfProject::new(id, &owner));
    let get = |at: usize| {
        let by = DeclaredBy::Supplied(scene.manifest(ids[at]).module);
        scene.runner.events.get(by, &of[at]).unwrap().unwrap()
    };
    let first = [get(0), get(1)];
    assert!(scene.registry.supplied.get(ids[0]).is_none(), "there is room for one");
    for at in [0, 1, 0] {
        assert!(Arc::ptr_eq(&get(at), &first[at]), "{at}");
    }
}

#[test]
fn a_supplied_interface_that_is_too_large_is_told_from_one_that_cannot_be_read() {
    let scene = Scene::new();
    let supply = |supplied| scene.supply(&owner("ana"), "own", supplied).unwrap_err();
    let large = [vec![b'['], vec![b' '; 2 << 20], vec![b']']].concat();
    assert!(matches!(supply(large), ProgramError::SuppliedTooLarge(_)));
    let module = [b"\0asm\x01\0\0\0".to_vec(), vec![0; 2 << 20]].concat();
    assert!(matches!(supply(module), ProgramError::SuppliedTooLarge(_)));
    assert!(matches!(supply(b"[7]".to_vec()), ProgramError::Supplied(_)));
}

/// Rows of a project's summary: their keys and values.
fn summary(scene: &Scene, id: ProgramId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let visit = |key: &[u8], value: &[u8]| parts.push((key.to_vec(), value.to_vec()));
    storage::summary_parts(&scene.store.shared_rows(), id, visit).unwrap();
    parts
}

fn stored(scene: &Scene, row: &SharedRow) -> Value {
    serde_json::from_slice(&scene.store.shared_row(row).unwrap().unwrap()).unwrap()
}

/// A store of an earlier version, which kept summary and tables in the manifest.
#[test]
fn summaries_of_earlier_versions_are_read() {
    let world = &WORLDS[0];
    let mut scene = Scene::indexing(world);
    let id = scene.watch("early", world.contracts.clone(), false);
    scene.run_until_settled();
    let before = scene.manifest(id);
    let project = before.events.clone().unwrap();
    assert!(project.summary.shapes().len() > 3 && !project.must_derive);
    let rows = summary(&scene, id);
    assert!(rows.len() > 3);
    let row = storage::manifest(id);
    let manifest = stored(&scene, &row);
    assert!(manifest["events"].get("shapes").is_none());
    assert_eq!(manifest["schema"]["tables"], json!([]));
    // What is stored of a change that concerns no event.
    scene.registry.set_running(&before.owner, id, false).unwrap();
    scene.registry.set_running(&before.owner, id, true).unwrap();
    assert_eq!(summary(&scene, id), rows);
    let mut earlier = manifest;
    earlier["schema"] = serde_json::to_value(&before.schema).unwrap();
    earlier["events"]["shapes"] = serde_json::to_value(project.summary.shapes()).unwrap();
    earlier["events"]["shapes"]["consulted"] = json!(["00"]);
    storage::change(&scene.store, |changes| {
        rows.iter().try_for_each(|(key, _)| changes.delete(&storage::summary(id, key)))?;
        storage::put_json(changes, &row, &earlier)
    })
    .unwrap();
    scene.restart();
    // Earlier versions had no tables for events that have not occurred.
    assert!(scene.manifest(id).events.unwrap().must_derive);
    scene.run_until_settled();
    assert!(!scene.manifest(id).events.unwrap().must_derive);
    assert_eq!(scene.manifest(id).schema.tables(), before.schema.tables());
    // But for the row that says that no event has certain names, which events had in earlier versions.
    let mut kept = rows;
    kept.retain(|(part, _)| !part.is_empty());
    assert_eq!(summary(&scene, id), kept);
    scene.restart();
    assert_eq!(scene.manifest(id).schema.tables(), before.schema.tables());
}

/// Other tables follow from a stored summary after an upgrade: the rows are derived anew.
#[test]
fn other_tables_of_the_same_summary_are_noticed() {
    let world = &WORLDS[0];
    let mut scene = Scene::indexing(world);
    let id = scene.watch("early", world.contracts.clone(), false);
    scene.run_until_settled();
    let row = storage::manifest(id);
    let mut manifest = stored(&scene, &row);
    manifest["events"]["tables"] = json!("others");
    storage::change(&scene.store, |changes| storage::put_json(changes, &row, &manifest)).unwrap();
    let derivation = scene.manifest(id).events.unwrap().derivation;
    scene.restart();
    assert!(scene.manifest(id).events.unwrap().must_derive);
    scene.run_until_settled();
    let project = scene.manifest(id).events.unwrap();
    assert!(!project.must_derive && project.derivation > derivation);
}

/// The summary counts for its owner, who else has no rows.
#[test]
fn a_summary_counts_for_its_owner() {
    let world = &WORLDS[0];
    let scene = Scene::indexing(world);
    let id = scene.watch("own", world.contracts.clone(), false);
    scene.run_until_settled();
    let entry = scene.registry.get(id).unwrap();
    let summary = scene.manifest(id).events.unwrap().summary.shapes().bytes() as u64;
    assert!(summary > 0);
    assert_eq!(entry.owner_bytes(), entry.snapshot().row_bytes + summary);
    scene.registry.delete(&scene.manifest(id).owner, id).unwrap();
    assert_eq!(entry.owner_bytes(), 0);
}
