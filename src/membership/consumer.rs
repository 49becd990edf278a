//! The feed consumer that keeps the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use orrery_executables::facts::{self, Facts as Executables, Said};
use orrery_executables::{Before, Executable};
use orrery_interfaces::is_asset_contract;
use orrery_ledger::decode::EntryKey;
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, NetworkId};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, EntryReader, FedLedger, Gathers, LedgerConsumer, Needs,
    StartPosition, Store, StoreError, TransactionPosition, TransactionRecord,
};
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::creation::{Creator, creators};
use super::learnt::Learnt;
use super::mentions::{self, Emitted};
use super::named::Named;
use super::rows::{
    CONSUMER, CREATED, Creation, LEARNT, Later, MADE, READ, RUNNERS, SEEN, TAGS, UNREAD, Unread,
};

/// What each ledger says.
const MENTIONS: Gathers = Gathers { consumer: CONSUMER, from: mentions::gather };

/// Limits of a topic that names an asset.
const TOPIC: Limits = Limits { depth: 10, len: 256 };

/// Feed consumer that keeps who created contracts, and which codes they have run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Membership;

impl LedgerConsumer for Membership {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: &[
                CREATED.family,
                MADE.family,
                RUNNERS.family,
                TAGS.family,
                READ.family,
                SEEN.family,
                LEARNT.family,
                UNREAD.family,
            ],
            needs: Needs { events: true, ..Needs::TRANSACTIONS },
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(MENTIONS)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let ledger = ledger.ledger;
        let reader = store.entry_reader(ledger)?;
        let mut adding = Adding::new(effects)?;
        let gathered = store.take_gathered(&MENTIONS, ledger);
        let emitted = match gathered.as_deref().and_then(mentions::decode) {
            Some((emitted, mentions)) => {
                read_mentioned(store, (&reader, ledger), mentions, &mut adding)?;
                emitted
            }
            None => {
                read_all(store, (&reader, ledger), &mut adding)?;
                Emitted::stored(store, ledger)?
            }
        };
        adding.add_emitted(&emitted, store.network().id())?;
        adding.finish()
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("what it knows from removed transactions cannot be read again")
    }
}

/// Reads the transactions of a ledger that may have changed what contracts run, and the first one that shows
/// what a contract runs: an earlier row says it where no ledger in between is missing.
fn read_mentioned(
    store: &Store,
    (reader, ledger): (&EntryReader<'_>, LedgerSeq),
    mentions: &[u8],
    adding: &mut Adding<'_, '_>,
) -> Result<(), StoreError> {
    let (mut orders, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for mention in facts::decode(mentions) {
        let must_read = match mention.written {
            None => true,
            Some(contract) => {
                seen.insert(contract) && !adding.has_read(store, &contract, ledger)?
            }
        };
        if must_read {
            orders.insert(mention.application_order);
        }
    }
    for application_order in orders {
        let position = TransactionPosition { ledger, application_order };
        let mut read = None;
        reader.transaction(position, |record| {
            read = Some(FactsOf::read(record, store.network().id()));
        })?;
        if let Some(facts) = read.transpose()? {
            adding.add(position, &facts)?;
        }
    }
    Ok(())
}

/// Reads all stored transactions of a ledger of which it is not known any more what they mention.
fn read_all(
    store: &Store,
    (reader, ledger): (&EntryReader<'_>, LedgerSeq),
    adding: &mut Adding<'_, '_>,
) -> Result<(), StoreError> {
    let mut all = Vec::new();
    reader.transactions_of(ledger, |record| {
        let read = match facts::is_mentioned(record.meta) {
            Ok(false) => return,
            Ok(true) => FactsOf::read(record, store.network().id()),
            Err(error) => Err(unreadable(record.position, &error)),
        };
        all.push((record.position, read));
    })?;
    all.into_iter().try_for_each(|(position, facts)| adding.add(position, &facts?))
}

/// Rows that are added.
struct Adding<'a, 'e> {
    effects: &'a mut ConsumerEffects<'e>,
    before: Unread,
    unread: Unread,
    /// What was learnt in this step, each once.
    learnt: BTreeSet<Learnt>,
}

impl<'a, 'e> Adding<'a, 'e> {
    fn new(effects: &'a mut ConsumerEffects<'e>) -> Result<Self, StoreError> {
        let before = UNREAD.get(effects, &())?.unwrap_or_default();
        Ok(Self { effects, before, unread: before, learnt: BTreeSet::new() })
    }

    fn finish(self) -> Result<(), StoreError> {
        match self.unread == self.before {
            true => Ok(()),
            false => UNREAD.put(self.effects, &(), &self.unread),
        }
    }

    /// Whether what a contract runs at the end of a ledger was read, and no ledger since is missing.
    fn has_read(
        &self,
        store: &Store,
        contract: &ContractId,
        ledger: LedgerSeq,
    ) -> Result<bool, StoreError> {
        let end = TransactionPosition { ledger, application_order: u32::MAX };
        let mut last = None;
        let from = (*contract, Later(end));
        READ.scan(self.effects, contract, Some(&from), |(_, Later(at)), ()| {
            last = Some(at.ledger);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last.is_some_and(|first| {
            store.is_complete_for(CONSUMER, contract, LedgerRange { first, last: ledger })
        }))
    }

    fn add(&mut self, at: TransactionPosition, facts: &FactsOf) -> Result<(), StoreError> {
        for (contract, creator) in &facts.created {
            let (transaction, creator) = (facts.transaction, *creator);
            self.add_creation(*contract, Creation { at, transaction, creator })?;
        }
        for (contract, executables) in &facts.instances {
            READ.put(self.effects, &(*contract, Later(at)), &())?;
            self.know(contract)?;
            for named in executables {
                self.add_runner(*named, *contract)?;
            }
        }
        for (tag, codes) in &facts.tags {
            for code in codes {
                if TAGS.put_new(self.effects, &(*code, *tag), &())? {
                    self.learn(Learnt::Tag(*tag))?;
                }
            }
        }
        // Also where all of it is known: times in which a code ran begin and end.
        facts.changed.iter().try_for_each(|what| self.learn(*what))
    }

    fn add_creation(&mut self, contract: ContractId, creation: Creation) -> Result<(), StoreError> {
        // A contract is created once; instances are never removed.
        if !CREATED.put_new(self.effects, &contract, &creation)? {
            return Ok(());
        }
        match creation.creator {
            Creator::Unread => self.unread.add_creation(creation.at.ledger),
            Creator::Asset => {}
            creator => {
                MADE.put(self.effects, &(creator, contract), &())?;
            }
        }
        self.learn(Learnt::Contract(contract))
    }

    fn add_runner(&mut self, named: Named, contract: ContractId) -> Result<(), StoreError> {
        match RUNNERS.put_new(self.effects, &(named, contract), &())? {
            true => self.learn(Learnt::Ran(contract, named)),
            false => Ok(()),
        }
    }

    fn add_emitted(&mut self, emitted: &Emitted, network: &NetworkId) -> Result<(), StoreError> {
        for (contract, code) in &emitted.updates {
            self.add_runner(Named::Code(*code), *contract)?;
            self.learn(Learnt::Contract(*contract))?;
        }
        for (contract, asset) in &emitted.emitters {
            if SEEN.has(self.effects, contract)? {
                continue;
            }
            let topic = ScVal::from_xdr(asset, TOPIC).ok();
            let is_asset = topic.is_some_and(|it| is_asset_contract(&[it], network, contract));
            SEEN.put(self.effects, contract, &is_asset)?;
            self.unread.code += u64::from(!is_asset);
        }
        Ok(())
    }

    /// Notes that an instance of a contract is known.
    fn know(&mut self, contract: &ContractId) -> Result<(), StoreError> {
        match SEEN.get(self.effects, contract)? {
            Some(true) => return Ok(()),
            Some(false) => self.unread.code = self.unread.code.saturating_sub(1),
            None => {}
        }
        SEEN.put(self.effects, contract, &true)
    }

    fn learn(&mut self, what: Learnt) -> Result<(), StoreError> {
        if !self.learnt.insert(what) {
            return Ok(());
        }
        self.unread.learnt += 1;
        LEARNT.put(self.effects, &self.unread.learnt, &what)
    }
}

/// What a transaction says.
#[derive(Debug, Default)]
struct FactsOf {
    transaction: Hash32,
    created: BTreeMap<ContractId, Creator>,
    /// What the instances of contracts name, before and after.
    instances: BTreeMap<ContractId, BTreeSet<Named>>,
    /// What entries name to which contracts refer.
    tags: BTreeMap<[u8; 32], BTreeSet<Hash32>>,
    /// What names something else after the transaction than before it.
    changed: BTreeSet<Learnt>,
}

impl FactsOf {
    fn read(record: &TransactionRecord<'_>, network: &NetworkId) -> Result<Self, StoreError> {
        let position = record.position;
        let read = Executables::of(record.meta, position.ledger)
            .map_err(|error| unreadable(position, &error))?;
        let transaction = Hash32(*record.tx);
        let mut facts = Self { transaction, ..Self::default() };
        let mut new = BTreeSet::new();
        for (id, Said { contract, change, is_instance }) in &read.changes {
            let before = match &change.before {
                Before::Held { executable, .. } => Some(executable),
                Before::Unknown | Before::Absent => None,
            };
            let said = before.into_iter().chain(&change.after);
            if before.is_none() || before != change.after.as_ref() {
                facts.changed.insert(match is_instance {
                    true => Learnt::Contract(*contract),
                    false => Learnt::Tag(*id),
                });
            }
            if !is_instance {
                facts.tags.entry(*id).or_default().extend(said.filter_map(code_of));
                continue;
            }
            match (&change.before, &change.after) {
                (Before::Absent, Some(Executable::Asset)) => {
                    facts.created.insert(*contract, Creator::Asset);
                }
                (Before::Absent, Some(_)) => {
                    new.insert(*contract);
                }
                _ => {}
            }
            facts.instances.entry(*contract).or_default().extend(said.filter_map(named));
        }
        if !new.is_empty() {
            let of = (record.envelope, record.meta);
            let found =
                creators(of, network, &new).map_err(|error| unreadable(position, &error))?;
            facts.created.extend(found);
        }
        Ok(facts)
    }
}

fn code_of(executable: &Executable) -> Option<Hash32> {
    match executable {
        Executable::Code(hash) => Some(*hash),
        _ => None,
    }
}

fn named(executable: &Executable) -> Option<Named> {
    match executable {
        Executable::Code(hash) => Some(Named::Code(*hash)),
        Executable::Reference(key) => Some(Named::Tag(facts::id_of(key))),
        Executable::Asset | Executable::Other => None,
    }
}

fn unreadable(position: TransactionPosition, error: &dyn std::fmt::Display) -> StoreError {
    let TransactionPosition { ledger, application_order } = position;
    StoreError::Database(format!(
        "transaction {application_order} of ledger {ledger} cannot be read: {error}"
    ))
}

/// Keeps what another server's answers say of the instances of contracts, and of entries that these refer to.
/// `answers` are keys of entries, each an XDR `LedgerKey`, with the XDR of the `LedgerEntry`.
///
/// # Errors
/// When the index does not exist here, or the database fails.
pub fn keep_answers(store: &Store, answers: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreError> {
    let answers: Vec<Answer> = answers.iter().filter_map(|(key, it)| Answer::of(key, it)).collect();
    if answers.is_empty() || store.consumer(CONSUMER).is_none() {
        return Ok(());
    }
    store.change_consumer_rows(CONSUMER, move |effects| {
        let mut adding = Adding::new(effects)?;
        answers.iter().try_for_each(|answer| adding.add_answer(answer))?;
        adding.finish()
    })
}

/// What an answer says of an entry.
struct Answer {
    contract: ContractId,
    id: [u8; 32],
    is_instance: bool,
    executable: Executable,
}

impl Answer {
    fn of(key: &[u8], entry: &[u8]) -> Option<Self> {
        let entry_key = EntryKey::from_ledger_key(key)?;
        Some(Self {
            contract: entry_key.contract()?,
            id: facts::id_of(key),
            is_instance: entry_key.instance_of().is_some(),
            executable: Executable::of_xdr(entry)?,
        })
    }
}

impl Adding<'_, '_> {
    fn add_answer(&mut self, answer: &Answer) -> Result<(), StoreError> {
        if answer.is_instance {
            self.know(&answer.contract)?;
            return match named(&answer.executable) {
                Some(named) => self.add_runner(named, answer.contract),
                None => Ok(()),
            };
        }
        match code_of(&answer.executable) {
            Some(code) if TAGS.put_new(self.effects, &(code, answer.id), &())? => {
                self.learn(Learnt::Tag(answer.id))
            }
            _ => Ok(()),
        }
    }
}
