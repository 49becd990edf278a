//! Projects that select events of any contract by their names: what they have does not depend on when the codes of
//! contracts became known, and what they keep of those that are not known is limited.

use super::*;
use orrery_store::EventQuery;

/// Maximum number of bytes of what is kept of a contract: that of four spans.
const MOST_BYTES: usize = 4 * 16;

impl Parts {
    /// Returns the contracts with events that may turn out to have a name of a project, with what is kept of each.
    fn unnamed(&self, id: ProgramId) -> BTreeMap<ContractId, Vec<u8>> {
        let mut found = BTreeMap::new();
        storage::unnamed_after(&self.store, id, None, |contract, row| {
            found.insert(contract, row.to_vec());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        found
    }

    /// Returns the contracts with stored events.
    fn emitters(&self) -> BTreeSet<ContractId> {
        let mut found = BTreeSet::new();
        let all = EventQuery::of_ledgers(LedgerRange::new(1, u32::MAX));
        let add = |event: &orrery_store::EventRecord<'_>| {
            found.extend(event.contract.map(|contract| ContractId(*contract)));
        };
        self.store.events(&all, add).unwrap();
        found
    }
}

impl History {
    /// What is kept of contracts is limited, whoever emits events.
    fn check_limits(&self) {
        let emitters = self.scene.emitters();
        for entry in self.scene.registry.all() {
            for (contract, kept) in self.scene.unnamed(entry.id) {
                assert!(emitters.contains(&contract), "{contract} has no events");
                assert!(!kept.is_empty() && kept.len() <= MOST_BYTES, "{}", kept.len());
            }
            let project = self.scene.manifest(entry.id).events.unwrap();
            for unsure in [&project.unsure, &project.apart] {
                let listed: BTreeSet<_> = unsure.spans().map(|span| span.contract).collect();
                assert!(listed.len() <= 2, "{listed:?}");
            }
            assert!(project.unnamed.is_empty());
        }
    }
}

#[test]
fn random_histories_give_the_rows_of_all_names() {
    histories::run(60, 10_000, |seed| {
        let mut history = History::new(seed);
        history.by_name = true;
        for _ in 0..STEPS {
            history.step();
            history.check_limits();
        }
        history.end();
        history.check_limits();
    });
}

/// Contracts' codes become known one ledger after the other, in the order of the chain or in the reverse one, while a
/// project looks: its rows are those of a project that looks once at all of it.
fn become_known_one_by_one(
    (world, ledgers): &'static (Factories, BTreeMap<u32, Vec<u8>>),
    is_reverse: bool,
    all: &[&str],
) -> usize {
    let scene = scene(world);
    let all = all.iter().map(|name| (*name).to_owned()).collect();
    let selectors = Selectors { all, ..Selectors::default() };
    scene.select("named", (Vec::new(), selectors), (None, None), Replace::No);
    let id = scene.registry.all()[0].id;
    let mut raw_ledgers: Vec<&Vec<u8>> = ledgers.values().collect();
    if is_reverse {
        raw_ledgers.reverse();
    }
    let mut noted = 0;
    for raw in raw_ledgers {
        // It is read before the index has it.
        scene.commit(raw, true);
        scene.learn(usize::MAX);
        settle(&scene);
        noted += scene.unnamed(id).len();
        scene.index(usize::MAX);
        settle(&scene);
    }
    let (found, _) = scene.content(id);
    let stored: Vec<&Vec<u8>> = ledgers.values().collect();
    let fresh = read_in_order(world, &stored, &scene.manifest(id), 100_000);
    assert_eq!(found.0, fresh.0, "the tables are the same");
    assert_eq!(found.1, fresh.1, "the rows are the same");
    noted
}

/// Gives turns until nothing is left to do: a turn for new ledgers may have nothing to do although earlier events have
/// yet to be read again.
fn settle(scene: &Scene) {
    (0..4).for_each(|_| scene.run_until_settled());
}

#[test]
fn names_that_become_known_ledger_by_ledger_are_those_of_a_rebuild() {
    let mut noted = 0;
    for world in FACTORIES.iter() {
        for is_reverse in [false, true] {
            noted += become_known_one_by_one(world, is_reverse, &["pool_made", "told"]);
            become_known_one_by_one(world, is_reverse, &["made", "said"]);
        }
    }
    assert!(noted > 0);
}
