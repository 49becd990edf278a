//! Facts beside a model that decodes everything, with ledgers in any order and with gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use orrery_testkit::factories::{Factories, constructor_call};
use orrery_testkit::histories;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataEntry, ContractExecutable, ContractIdPreimage, ContractIdPreimageFromAddress,
    CreateContractArgs, DiagnosticEvent, Hash, HashIdPreimage, HashIdPreimageContractId,
    HostFunction, InvokeContractArgs, InvokeHostFunctionOp, LedgerCloseMeta, LedgerEntryChange,
    LedgerEntryData, LedgerKey, Limits, Operation, OperationBody, ReadXdr, ScAddress, ScVal,
    SorobanAuthorizationEntry, SorobanAuthorizedFunction, SorobanAuthorizedInvocation,
    SorobanCredentials, Transaction, TransactionEnvelope, TransactionMeta, TransactionMetaV4,
    TransactionV1Envelope, Uint256, WriteXdr,
};

use super::creation::{Creator, creators};
use super::named::Named;
use super::{Facts, Learnt, Membership, Unread, code_events, has_passed};
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{Durability, Extensions, IndexOptions, LedgerConsumer, Store};

/// What the ledgers of a network say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Contracts that contracts created, by these.
    made: BTreeSet<(ContractId, ContractId)>,
    created: BTreeMap<ContractId, u32>,
    unread: BTreeSet<ContractId>,
    /// What instances name, and codes of entries that they refer to.
    runners: BTreeSet<(Vec<u8>, ContractId)>,
    tags: BTreeSet<([u8; 32], [u8; 32])>,
    unread_ledgers: BTreeSet<u32>,
}

fn digest(key: &LedgerKey) -> [u8; 32] {
    Sha256::digest(key.to_xdr(Limits::none()).unwrap()).into()
}

impl Said {
    fn of<'a>(world: &Factories, ledgers: impl Iterator<Item = &'a Vec<u8>>) -> Self {
        let mut said = Self::default();
        for raw in ledgers {
            let ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
            let LedgerCloseMeta::V2(ledger) = ledger else { panic!() };
            let sequence = ledger.ledger_header.header.ledger_seq;
            for transaction in ledger.tx_processing.iter() {
                let TransactionMeta::V4(meta) = &transaction.tx_apply_processing else { continue };
                said.add(world, sequence, meta);
            }
        }
        said
    }

    fn add(&mut self, world: &Factories, ledger: u32, meta: &TransactionMetaV4) {
        for change in meta.operations.iter().flat_map(|operation| operation.changes.iter()) {
            let (LedgerEntryChange::Created(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::State(entry)
            | LedgerEntryChange::Restored(entry)) = change
            else {
                continue;
            };
            let LedgerEntryData::ContractData(data) = &entry.data else { continue };
            let ContractDataEntry { contract: ScAddress::Contract(id), key, val, .. } = data else {
                continue;
            };
            let contract = ContractId(id.0.0);
            if let (ScVal::ExecutableTag(_), ScVal::Bytes(hash)) = (key, val) {
                let hash = hash.as_slice().try_into().unwrap();
                self.tags.insert((hash, digest(&entry.to_key())));
            }
            let ScVal::ContractInstance(instance) = val else { continue };
            match &instance.executable {
                ContractExecutable::Wasm(hash) => {
                    self.runners.insert((hash.0.to_vec(), contract));
                }
                ContractExecutable::ExternalRef(reference) => {
                    let key = LedgerKey::ContractData(stellar_xdr::LedgerKeyContractData {
                        contract: reference.executable_owner.clone(),
                        key: ScVal::ExecutableTag(reference.tag.clone()),
                        durability: stellar_xdr::ContractDataDurability::Persistent,
                    });
                    self.runners.insert((digest(&key).to_vec(), contract));
                }
                ContractExecutable::StellarAsset => {}
            }
            if matches!(change, LedgerEntryChange::Created(_)) {
                self.created.insert(contract, ledger);
                match world.made.get(&contract) {
                    Some(_) if contract.0[0].is_multiple_of(3) => {
                        self.unread.insert(contract);
                        self.unread_ledgers.insert(ledger);
                    }
                    Some(maker) => {
                        self.made.insert((*maker, contract));
                    }
                    None => {}
                }
            }
        }
    }
}

fn open(world: &Factories) -> (Store, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let extensions = Extensions::for_consumers(&[Arc::new(Membership), Arc::new(code_events())]);
    let store = Store::open_with(directory.path(), Some(&world.network), extensions).unwrap();
    (store, directory)
}

fn commit(store: &Store, raw: &[u8], raw_ledgers: bool) {
    let view = decode(raw, store.network().id()).unwrap();
    let options = IndexOptions { raw_ledgers, ..IndexOptions::default() };
    let prepared = store.prepare(&view, None, &options).unwrap();
    store.commit(prepared, Durability::Deferred).unwrap();
}

fn step(store: &Store) {
    for consumer in [&Membership as &dyn LedgerConsumer, &code_events()] {
        while store.step(consumer).unwrap() {}
    }
}

/// Compares the facts. `is_whole` says whether all ledgers are stored.
fn check(store: &Store, world: &Factories, said: &Said, is_whole: bool) {
    let facts = Facts::new(store).unwrap();
    let mut made = BTreeSet::new();
    let makers: BTreeSet<ContractId> = world.made.values().copied().collect();
    for maker in makers {
        let creator = Creator::Contract(maker);
        facts
            .made_by(&creator, None, |contract| {
                made.insert((maker, contract));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
    }
    assert_eq!(made, said.made);
    for (contract, ledger) in &said.created {
        let creation = facts.creation(contract).unwrap().unwrap();
        assert_eq!(creation.at.ledger.0, *ledger);
        let is_unread = said.unread.contains(contract);
        assert_eq!(creation.creator == Creator::Unread, is_unread, "{contract}");
    }
    let mut runners = BTreeSet::new();
    let named = said.runners.iter().map(|(named, _)| named.clone());
    for named in named.collect::<BTreeSet<_>>() {
        let id: [u8; 32] = named.as_slice().try_into().unwrap();
        let mut visit = |contract| {
            runners.insert((named.clone(), contract));
            Ok(ControlFlow::Continue(()))
        };
        facts.referring(id, &mut visit).unwrap();
        for (_, contract) in said.runners.iter().filter(|(other, _)| *other == named) {
            if facts.has_named(Named::Code(Hash32(id)), contract).unwrap() {
                assert!(visit(*contract).unwrap().is_continue());
            }
        }
    }
    assert_eq!(runners, said.runners);
    for code in &world.codes {
        let tags = facts.tags_of(&Hash32(*code)).unwrap();
        let expected = said.tags.iter().filter(|(hash, _)| hash == code).map(|(_, tag)| *tag);
        assert_eq!(tags, expected.collect());
    }
    let Unread { code, creations, first, last, .. } = facts.unread().unwrap();
    assert_eq!(creations, said.unread.len() as u64);
    let ledgers = &said.unread_ledgers;
    let ends = (ledgers.first().copied().unwrap_or(0), ledgers.last().copied().unwrap_or(0));
    assert_eq!((first, last), (LedgerSeq(ends.0), LedgerSeq(ends.1)));
    if is_whole {
        assert_eq!(code, 0, "an instance is known of each contract");
    }
}

/// Facts follow from the stored ledgers alone, whatever their order.
#[test]
fn facts_do_not_depend_on_the_order_of_ledgers() {
    let worlds: Vec<Factories> = (0..2).map(Factories::made).collect();
    histories::run(16, 1_000, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let world = &worlds[(seed % 2) as usize];
        let (store, _directory) = open(world);
        let mut order: Vec<&Vec<u8>> = world.ledgers.iter().collect();
        order.shuffle(&mut random);
        if random.random() {
            order.truncate(random.random_range(1..=order.len()));
        }
        for raw in &order {
            commit(&store, raw, random.random());
            if random.random_ratio(1, 3) {
                step(&store);
            }
        }
        step(&store);
        let is_whole = order.len() == world.ledgers.len();
        check(&store, world, &Said::of(world, order.into_iter()), is_whole);
    });
}

/// The instances, and entries that references name, that transactions of a ledger leave with another executable
/// than they found.
fn changed(raw: &[u8]) -> BTreeSet<Learnt> {
    let ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
    let LedgerCloseMeta::V2(ledger) = ledger else { panic!() };
    let mut changed = BTreeSet::new();
    for transaction in ledger.tx_processing.iter() {
        let TransactionMeta::V4(meta) = &transaction.tx_apply_processing else { continue };
        let mut values: BTreeMap<Learnt, Vec<Vec<u8>>> = BTreeMap::new();
        for change in meta.operations.iter().flat_map(|operation| operation.changes.iter()) {
            let (LedgerEntryChange::Created(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::State(entry)
            | LedgerEntryChange::Restored(entry)) = change
            else {
                continue;
            };
            let LedgerEntryData::ContractData(data) = &entry.data else { continue };
            let ScAddress::Contract(id) = &data.contract else { continue };
            let (what, value) = match (&data.key, &data.val) {
                (ScVal::ExecutableTag(_), value) => {
                    (Learnt::Tag(digest(&entry.to_key())), value.to_xdr(Limits::none()))
                }
                (_, ScVal::ContractInstance(instance)) => {
                    let executable = instance.executable.to_xdr(Limits::none());
                    (Learnt::Contract(ContractId(id.0.0)), executable)
                }
                _ => continue,
            };
            values.entry(what).or_default().push(value.unwrap());
        }
        let differs = |values: &Vec<Vec<u8>>| values.first() != values.last();
        changed.extend(values.iter().filter(|(_, it)| differs(it)).map(|(what, _)| *what));
    }
    changed
}

/// What was learnt tells of each new fact once it is there, and of each change of what a contract runs.
#[test]
fn what_was_learnt_names_all_contracts_with_facts() {
    let (mut changes, mut again) = (0, 0);
    for seed in 0..4 {
        let world = Factories::made(seed);
        let (store, _directory) = open(&world);
        let (mut number, mut learnt, mut ran) = (0, BTreeSet::new(), BTreeSet::new());
        for raw in &world.ledgers {
            commit(&store, raw, true);
            step(&store);
            let facts = Facts::new(&store).unwrap();
            let mut new = Vec::new();
            facts
                .learnt_after(number, |_, what| {
                    new.push(what);
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            number = facts.newest().unwrap();
            for what in changed(raw) {
                assert!(new.contains(&what), "{what:?}");
                changes += 1;
                let is_new = |it: &Learnt| match (it, what) {
                    (Learnt::Ran(contract, _), Learnt::Contract(of)) => *contract == of,
                    _ => false,
                };
                again += u32::from(matches!(what, Learnt::Contract(_)) && !new.iter().any(is_new));
            }
            for what in &new {
                // That a contract has changed is said by transactions, and by events.
                let most = if matches!(what, Learnt::Contract(_)) { 2 } else { 1 };
                let count = new.iter().filter(|it| *it == what).count();
                assert!(count <= most, "once in each ledger: {what:?}");
            }
            for what in new {
                match what {
                    Learnt::Contract(contract) => {
                        learnt.insert(contract);
                    }
                    Learnt::Ran(contract, named) => assert!(ran.insert((named, contract))),
                    Learnt::Tag(_) => {}
                }
            }
        }
        let said = Said::of(&world, world.ledgers.iter());
        let created: BTreeSet<ContractId> = said.created.keys().copied().collect();
        assert!(learnt.is_superset(&created) && created.len() > 10);
        for (named, contract) in &said.runners {
            let id: [u8; 32] = named.as_slice().try_into().unwrap();
            let either = [Named::Code(Hash32(id)), Named::Tag(id)];
            assert!(either.iter().any(|named| ran.contains(&(*named, *contract))));
        }
        assert!(has_passed(&store, store.last_place()).unwrap());
    }
    assert!(changes > 0 && again > 0, "{changes} {again}");
}

fn address(byte: u8) -> ScAddress {
    ScAddress::Contract(stellar_xdr::ContractId(Hash([byte; 32])))
}

fn preimage(byte: u8) -> ContractIdPreimage {
    let (address, salt) = (address(byte), Uint256([byte; 32]));
    ContractIdPreimage::Address(ContractIdPreimageFromAddress { address, salt })
}

/// An envelope whose operation calls a contract, with an authorization entry below whose root contracts are
/// created from preimages.
fn envelope(authorized: &[ContractIdPreimage]) -> Vec<u8> {
    let args = |function: &str| InvokeContractArgs {
        contract_address: address(1),
        function_name: function.try_into().unwrap(),
        args: Default::default(),
    };
    let created = authorized.iter().map(|preimage| SorobanAuthorizedInvocation {
        function: SorobanAuthorizedFunction::CreateContractHostFn(CreateContractArgs {
            contract_id_preimage: preimage.clone(),
            executable: ContractExecutable::Wasm(Hash([3; 32])),
        }),
        sub_invocations: Default::default(),
    });
    let root_invocation = SorobanAuthorizedInvocation {
        function: SorobanAuthorizedFunction::ContractFn(args("make")),
        sub_invocations: created.collect::<Vec<_>>().try_into().unwrap(),
    };
    let auth = SorobanAuthorizationEntry {
        credentials: SorobanCredentials::SourceAccount,
        root_invocation,
    };
    let operation = Operation {
        source_account: None,
        body: OperationBody::InvokeHostFunction(InvokeHostFunctionOp {
            host_function: HostFunction::InvokeContract(args("make")),
            auth: vec![auth].try_into().unwrap(),
        }),
    };
    let tx =
        Transaction { operations: vec![operation].try_into().unwrap(), ..Transaction::default() };
    let envelope = TransactionV1Envelope { tx, signatures: Default::default() };
    TransactionEnvelope::Tx(envelope).to_xdr(Limits::none()).unwrap()
}

fn meta(diagnostics: Vec<DiagnosticEvent>) -> Vec<u8> {
    let diagnostic_events = diagnostics.try_into().unwrap();
    let meta = TransactionMetaV4 { diagnostic_events, ..TransactionMetaV4::default() };
    TransactionMeta::V4(meta).to_xdr(Limits::none()).unwrap()
}

#[test]
fn a_creator_is_the_address_in_the_preimage_or_the_one_caller_of_the_constructor() {
    let network = orrery_ledger::domain::Network::from_passphrase("creators");
    let id = |preimage: &ContractIdPreimage| {
        let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
            network_id: Hash(network.id().0),
            contract_id_preimage: preimage.clone(),
        });
        ContractId(Sha256::digest(preimage.to_xdr(Limits::none()).unwrap()).into())
    };
    let contract = |byte| ContractId([byte; 32]);
    let (named, called, twice, failed, unread) =
        (id(&preimage(5)), contract(11), contract(12), contract(13), contract(14));
    let of_other = contract(99);
    let diagnostics = vec![
        constructor_call(contract(1), named),
        constructor_call(contract(2), called),
        constructor_call(contract(2), called),
        constructor_call(contract(2), twice),
        constructor_call(contract(3), twice),
        DiagnosticEvent {
            in_successful_contract_call: false,
            ..constructor_call(contract(2), failed)
        },
        constructor_call(contract(2), of_other),
    ];
    let created = BTreeSet::from([named, called, twice, failed, unread]);
    // What is authorised and was not created is nobody's.
    let envelope = envelope(&[preimage(5), preimage(6)]);
    let found = creators((&envelope, &meta(diagnostics)), network.id(), &created).unwrap();
    let expected = BTreeMap::from([
        (named, Creator::Contract(contract(5))),
        (called, Creator::Contract(contract(2))),
        (twice, Creator::Unread),
        (failed, Creator::Unread),
        (unread, Creator::Unread),
    ]);
    assert_eq!(found, expected);
    assert!(creators((&envelope[1..], &[]), network.id(), &created).is_err());
}
