//! Contracts that change their code more often than is recorded.

use orrery_sandbox::network::Request;
use orrery_testkit::upgraded::remembering_version;
use orrery_testkit::values::bytes;
use sha2::{Digest, Sha256};
use stellar_xdr::{Hash, LedgerKey, LedgerKeyContractCode};

use super::by_events::{changes_of, rows_of};
use super::*;
use crate::events::MembersStatus;

/// Number of changes of the contract's code in each of these ledgers.
const UPGRADES: [usize; 14] = [3, 0, 5, 8, 1, 6, 9, 9, 9, 9, 9, 9, 9, 9];

/// A network in which a contract has one of two codes by turns.
fn world() -> (Factories, ContractId) {
    let mut sandbox = sandbox(9, 0..=0);
    let codes = [0, 1].map(remembering_version);
    let hashes = codes.each_ref().map(|code| <[u8; 32]>::from(Sha256::digest(code)));
    let contract = sandbox.contract([1; 32]).unwrap();
    let mut ledgers = Vec::new();
    let mut close =
        |requests: &[Request]| ledgers.push(sandbox.next_ledger_with(requests).unwrap());
    (2..=6).for_each(|_| close(&[]));
    codes.iter().for_each(|code| close(&[Request::Upload { code: code.clone() }]));
    let (code, salt, arguments) = (codes[0].clone(), [1; 32], Vec::new());
    close(&[Request::Create { code, salt, arguments }]);
    let key = |hash| LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(hash) });
    let upgrade = |number: usize| {
        let (function, arguments) = ("upgrade".to_owned(), vec![bytes(&hashes[number % 2])]);
        let request = Box::new(Request::Call { contract, function, arguments });
        Request::WithExtraKeys { keys: hashes.map(key).to_vec(), request }
    };
    let mut number = 0;
    for count in UPGRADES {
        let requests: Vec<_> = (number + 1..=number + count).map(upgrade).collect();
        close(&requests);
        number += count;
    }
    let (network, factories, made) = (local(), Vec::new(), BTreeMap::new());
    (Factories { network, ledgers, factories, codes: hashes.to_vec(), made }, contract)
}

fn said(scene: &Scene, id: ProgramId) -> Option<String> {
    let (entry, manifest) = (scene.registry.get(id).unwrap(), scene.manifest(id));
    let of = (scene.runner.events.members(), &entry.members);
    let status = MembersStatus::of(&scene.store, of, &manifest, false).unwrap().unwrap();
    let status = serde_json::to_value(&status).unwrap();
    status.get("members_cut").map(|said| said.as_str().unwrap().to_owned())
}

/// The status says when times are cut; what is recorded then stays as it is, and all events are rows.
#[test]
fn times_beyond_those_that_are_recorded_are_said_to_be_cut() {
    let (world, contract) = world();
    let mut scene = scene(&world);
    let wasm = world.codes.iter().map(|code| Hash32(*code)).collect();
    let selectors = Selectors { wasm, ..Selectors::default() };
    scene.select("p", (Vec::new(), selectors.clone()), (None, None), Replace::No);
    let id = scene.registry.all()[0].id;
    let (mut cut, mut since) = (None, 0);
    for (number, raw) in world.ledgers.iter().enumerate() {
        scene.commit(raw, number % 2 == 0);
        scene.index(usize::MAX);
        scene.learn(usize::MAX);
        scene.run_until_settled();
        let changes = changes_of(&scene, id);
        match (said(&scene, id), &cut) {
            (None, None) => {}
            (Some(said), None) => {
                assert!(said.starts_with("1 of the members changed"), "{said}");
                cut = Some(changes);
            }
            (said, Some(cut)) => {
                assert!(said.is_some());
                assert_eq!(changes, *cut, "the first ones stay");
                since += 1;
            }
        }
        if number % 5 == 4 {
            scene.restart();
            scene.run_until_settled();
            assert_eq!(said(&scene, id).is_some(), cut.is_some(), "also after a restart");
        }
    }
    assert!(since > 3, "{since}");
    let changes: usize = UPGRADES.iter().sum();
    let rows: usize = rows_of(&scene, id).values().sum();
    assert_eq!(rows, changes, "each change has an event, and each event is a row");
    assert!(rows_of(&scene, id).keys().all(|(_, of)| *of == contract));
    let fresh = by_events::project(&scene, "fresh", &selectors);
    assert_eq!(scene.content(id).0.1, scene.content(fresh).0.1);
    assert_eq!(said(&scene, fresh), said(&scene, id));
}
