//! The ledger as a run sees it: what is known of the state before the transaction, with the code of
//! registered contracts replaced.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use soroban_env_host::HostError;
use soroban_env_host::ledger_info::get_key_durability;
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use soroban_env_host::xdr::{
    ContractExecutable, Hash, LedgerEntry, LedgerEntryData, LedgerKey, ScAddress, ScErrorCode,
    ScErrorType, ScVal,
};

use super::limits::{STOPPED, Stop};
use super::run::Message;
use crate::domain::ContractId;

/// The error with which a lookup ends the run. No caller can catch it.
const UNKNOWN: soroban_env_host::Error =
    soroban_env_host::Error::from_type_and_code(ScErrorType::Storage, ScErrorCode::InternalError);

/// What is known of an entry, in a form that crosses threads.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Present(Box<LedgerEntry>, Option<u32>),
    Absent,
    Unknown,
    /// Looking it up failed; the thread that looked knows why.
    Failed,
}

/// The hash that stands for a program in the entry of a contract.
pub(super) type Synthetic = Hash;

/// Looks entries up while a run lasts.
pub(super) struct Snapshot {
    /// What was known before the run began.
    before: RefCell<HashMap<LedgerKey, Answer>>,
    /// Whom to ask for the rest.
    ask: Sender<Message>,
    reply: SyncSender<Answer>,
    replies: std::sync::mpsc::Receiver<Answer>,
    /// Registered contracts, by id.
    replaced: HashMap<ContractId, Synthetic>,
    bounds: std::sync::Arc<super::limits::Bounds>,
    /// An unknown lifetime counts as the longest.
    longest_life: u32,
    read: RefCell<HashMap<Rc<LedgerKey>, Option<EntryWithLiveUntil>>>,
    originals: RefCell<HashMap<ContractId, ContractExecutable>>,
    missing: RefCell<Vec<LedgerKey>>,
}

impl Snapshot {
    pub(super) fn new(
        before: HashMap<LedgerKey, Answer>,
        ask: Sender<Message>,
        replaced: HashMap<ContractId, Synthetic>,
        bounds: std::sync::Arc<super::limits::Bounds>,
        longest_life: u32,
    ) -> Self {
        let (reply, replies) = sync_channel(1);
        Self {
            before: RefCell::new(before),
            ask,
            reply,
            replies,
            replaced,
            bounds,
            longest_life,
            read: RefCell::default(),
            originals: RefCell::default(),
            missing: RefCell::default(),
        }
    }

    /// An entry as it was before, with its own code.
    fn answer(&self, key: &LedgerKey) -> Answer {
        if let Some(answer) = self.before.borrow_mut().remove(key) {
            return answer;
        }
        let wanted = Message::Wanted(Box::new(key.clone()), self.reply.clone());
        if self.ask.send(wanted).is_err() {
            return Answer::Failed;
        }
        self.replies.recv().unwrap_or(Answer::Failed)
    }

    fn look_up(&self, key: &LedgerKey) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if self.bounds.check().is_err() {
            return Err(STOPPED.into());
        }
        // A nonce is used once: before the transaction that uses it, there is none.
        if is_nonce(key) || self.is_synthetic(key) {
            return Ok(None);
        }
        match self.answer(key) {
            Answer::Present(mut entry, live_until) => {
                self.replace_code(&mut entry);
                let live_until =
                    get_key_durability(key).map(|_| live_until.unwrap_or(self.longest_life));
                Ok(Some((Rc::new(*entry), live_until)))
            }
            Answer::Absent => Ok(None),
            Answer::Unknown => {
                self.missing.borrow_mut().push(key.clone());
                self.bounds.stop(Stop::State);
                Err(UNKNOWN.into())
            }
            Answer::Failed => {
                self.bounds.stop(Stop::State);
                Err(UNKNOWN.into())
            }
        }
    }

    fn is_synthetic(&self, key: &LedgerKey) -> bool {
        match key {
            LedgerKey::ContractCode(code) => self.stands_for_program(&code.hash),
            _ => false,
        }
    }

    /// Whether a hash of code is one that stands for a program.
    pub(super) fn stands_for_program(&self, code: &Hash) -> bool {
        self.replaced.values().any(|synthetic| synthetic == code)
    }

    /// Puts the synthetic hash into the instance of a registered contract.
    fn replace_code(&self, entry: &mut LedgerEntry) {
        let LedgerEntryData::ContractData(data) = &mut entry.data else { return };
        let (ScAddress::Contract(contract), ScVal::ContractInstance(instance)) =
            (&data.contract, &mut data.val)
        else {
            return;
        };
        let contract = ContractId(contract.0.0);
        let is_instance = data.key == ScVal::LedgerKeyContractInstance;
        if let (true, Some(synthetic)) = (is_instance, self.replaced.get(&contract)) {
            let original = std::mem::replace(
                &mut instance.executable,
                ContractExecutable::Wasm(synthetic.clone()),
            );
            self.originals.borrow_mut().insert(contract, original);
        }
    }

    /// Entries that were needed and are not known.
    pub(super) fn missing(&self) -> Vec<LedgerKey> {
        self.missing.borrow().clone()
    }

    /// The executable that a synthetic hash stands for.
    pub(super) fn original(&self, synthetic: &Hash) -> Option<ContractExecutable> {
        let contract = self.replaced.iter().find(|(_, hash)| *hash == synthetic)?.0;
        self.originals.borrow().get(contract).cloned()
    }

    /// An entry as the run found it. The host deletes entries without reading them; of those this
    /// finds out now.
    pub(super) fn found(&self, key: &LedgerKey) -> Option<Rc<LedgerEntry>> {
        if let Some(entry) = self.read.borrow().get(key) {
            return entry.as_ref().map(|(entry, _)| Rc::clone(entry));
        }
        match self.answer(key) {
            Answer::Present(entry, _) => Some(Rc::new(*entry)),
            Answer::Absent | Answer::Unknown | Answer::Failed => None,
        }
    }
}

impl SnapshotSource for Snapshot {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if let Some(entry) = self.read.borrow().get(key) {
            return Ok(entry.clone());
        }
        let entry = self.look_up(key)?;
        self.read.borrow_mut().insert(Rc::clone(key), entry.clone());
        Ok(entry)
    }
}

/// Whether a key is that of a nonce, which the host keeps as temporary data.
pub(super) fn is_nonce(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)))
}
