//! Simulates transactions on the state at the end of a ledger of any network, as far as somebody knows
//! that state: with the ledger's own number, close time and settings, in the host that executes the
//! calls of a sandbox. Nothing is guessed: what is not known ends the simulation.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use orrery_ledger::domain::{AuthMode, LedgerSeq, NetworkId, Simulation};
use scoped_tls_hkt::scoped_thread_local;
use sha2::{Digest, Sha256};
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use soroban_env_host::{HostError, LedgerInfo};
use soroban_simulation::NetworkConfig;
use stellar_xdr::{
    ConfigSettingEntry, ConfigSettingId, LedgerEntry, LedgerEntryData, LedgerEntryExt, LedgerKey,
    Limits, ScErrorCode, ScErrorType, ScVal, TransactionV1Envelope, WriteXdr,
};

use super::network::simulated::{Circumstances, Manner, simulate};

/// The only protocol that the host runs as networks do. It would run ledgers of older ones by the rules of
/// this one.
pub const PROTOCOL: u32 = soroban_env_host::meta::INTERFACE_VERSION.protocol;

/// Settings of the network that the host needs, besides the size of the state.
pub const SETTINGS: [ConfigSettingId; 9] = [
    ConfigSettingId::ContractComputeV0,
    ConfigSettingId::ContractLedgerCostV0,
    ConfigSettingId::ContractLedgerCostExtV0,
    ConfigSettingId::ContractHistoricalDataV0,
    ConfigSettingId::ContractEventsV0,
    ConfigSettingId::ContractBandwidthV0,
    ConfigSettingId::StateArchival,
    ConfigSettingId::ContractCostParamsCpuInstructions,
    ConfigSettingId::ContractCostParamsMemoryBytes,
];

/// Maximum number of entries that one simulation reads, and of their bytes: several times as many as a
/// transaction of the public network may.
const MOST_ENTRIES: usize = 1_000;
const MOST_BYTES: usize = 32 << 20;
/// Most that the settings of a network may allow a call: instructions, of which a core does some hundred
/// million in a second, and bytes of memory.
const MOST_INSTRUCTIONS: i64 = 1_000_000_000;
const MOST_MEMORY: u32 = 256 << 20;

/// Error with which an entry that is not known ends the host. A calling contract cannot catch it.
const ENDED: soroban_env_host::Error =
    soroban_env_host::Error::from_type_and_code(ScErrorType::Storage, ScErrorCode::InternalError);

// The host owns its source of entries, while a state borrows from what it reads: the thread holds the
// state here while the simulation lasts.
scoped_thread_local!(static STATE: for<'a> &'a dyn SnapshotSource);

/// The source of entries that the host owns.
struct OfThisThread;

impl SnapshotSource for OfThisThread {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        STATE.with(|state| state.get(key))
    }
}

/// What is known of an entry at the end of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// There was this entry. Contains the last ledger in which it is live, if it has a time to live.
    Present(Rc<LedgerEntry>, Option<u32>),
    /// There was none, or it was temporary and dead.
    Absent,
    /// It is not known, or its time to live is not.
    Unknown,
}

/// The state at the end of a ledger, as far as somebody knows it.
pub trait KnownState {
    /// Why an entry cannot be looked up.
    type Error;

    /// Returns what is known of an entry.
    ///
    /// # Errors
    /// When the lookup failed, which says nothing about the entry.
    fn entry(&self, key: &LedgerKey) -> Result<Known, Self::Error>;
}

/// The ledger at whose end a transaction is simulated.
#[derive(Debug, Clone)]
pub struct PastLedger {
    /// Its number.
    pub sequence: LedgerSeq,
    /// When it closed, UNIX seconds.
    pub close_time: u64,
    /// The network.
    pub network: NetworkId,
    /// Unit of the minimum balance of accounts, in stroops.
    pub base_reserve: u32,
    /// Size of all live contract data and code, in bytes.
    pub state_size: u64,
    /// The network's settings: those of [`SETTINGS`].
    pub settings: Vec<LedgerEntry>,
}

/// Why a transaction was not simulated.
#[derive(Debug)]
pub enum NotSimulated<E> {
    /// The entry under this key, or its time to live, is not known.
    Unknown(Box<LedgerKey>),
    /// An entry could not be looked up.
    Lookup(E),
    /// The call read more than is allowed.
    TooMuch,
    /// The ledger's settings do not allow it. Contains a sentence.
    Settings(String),
}

/// Simulates a transaction of one contract operation on the state at the end of a ledger. A failure of
/// the operation is part of the result.
///
/// # Errors
/// [`NotSimulated`].
pub fn simulate_after<S: KnownState>(
    ledger: &PastLedger,
    state: &S,
    envelope: &TransactionV1Envelope,
    mode: AuthMode,
    leeway: u32,
) -> Result<Simulation, NotSimulated<S::Error>> {
    let circumstances = circumstances(ledger, envelope).map_err(NotSimulated::Settings)?;
    let records = matches!(mode, AuthMode::Record { .. });
    let state = PastState {
        state,
        records,
        read: RefCell::default(),
        bytes: Cell::default(),
        ended: RefCell::default(),
    };
    let manner = Manner { mode, leeway };
    let simulation =
        STATE.set(&state, || simulate(&Rc::new(OfThisThread), &circumstances, envelope, manner));
    match state.ended.take() {
        Some(ended) => Err(ended),
        None => Ok(simulation),
    }
}

/// Returns where a transaction is simulated. The error is a sentence.
fn circumstances(
    ledger: &PastLedger,
    envelope: &TransactionV1Envelope,
) -> Result<Circumstances, String> {
    let PastLedger { sequence, state_size, .. } = ledger;
    let window = ConfigSettingEntry::LiveSorobanStateSizeWindow(
        vec![*state_size].try_into().map_err(|error| format!("{error}"))?,
    );
    let config = NetworkConfig::load_from_snapshot(&Settings { ledger, window })
        .map_err(|error| format!("the settings of ledger {sequence} cannot be used: {error:#}"))?;
    if config.tx_max_instructions > MOST_INSTRUCTIONS || config.tx_memory_limit > MOST_MEMORY {
        return Err(format!(
            "the settings of ledger {sequence} allow a call more than is simulated here: \
             {MOST_INSTRUCTIONS} instructions and {MOST_MEMORY} bytes of memory"
        ));
    }
    let mut info = LedgerInfo {
        protocol_version: PROTOCOL,
        sequence_number: sequence.0,
        timestamp: ledger.close_time,
        network_id: ledger.network.0,
        base_reserve: ledger.base_reserve,
        ..LedgerInfo::default()
    };
    config.fill_config_fields_in_ledger_info(&mut info);
    let envelope = envelope.to_xdr(Limits::none()).map_err(|error| error.to_string())?;
    let digest = Sha256::new().chain_update(sequence.0.to_be_bytes()).chain_update(envelope);
    Ok(Circumstances { latest: *sequence, info, config, seed: digest.finalize().into() })
}

/// The network's settings, as the host's library reads them.
struct Settings<'l> {
    ledger: &'l PastLedger,
    /// The size of the state, of which networks keep several samples.
    window: ConfigSettingEntry,
}

impl SnapshotSource for Settings<'_> {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        let window = LedgerEntry {
            last_modified_ledger_seq: self.ledger.sequence.0,
            data: LedgerEntryData::ConfigSetting(self.window.clone()),
            ext: LedgerEntryExt::V0,
        };
        let mut all = std::iter::once(&window).chain(&self.ledger.settings);
        let found = all.find(|entry| entry.to_key() == **key);
        Ok(found.map(|entry| (Rc::new(entry.clone()), None)))
    }
}

/// The state as the host reads it.
struct PastState<'s, S: KnownState> {
    state: &'s S,
    /// Whether authorisation is recorded: then the host makes up nonces.
    records: bool,
    read: RefCell<HashMap<Rc<LedgerKey>, Option<EntryWithLiveUntil>>>,
    /// Size of the entries that were read.
    bytes: Cell<usize>,
    /// Why the simulation ended.
    ended: RefCell<Option<NotSimulated<S::Error>>>,
}

impl<S: KnownState> PastState<'_, S> {
    fn look_up(
        &self,
        key: &LedgerKey,
    ) -> Result<Option<EntryWithLiveUntil>, NotSimulated<S::Error>> {
        if self.read.borrow().len() >= MOST_ENTRIES || self.bytes.get() > MOST_BYTES {
            return Err(NotSimulated::TooMuch);
        }
        if self.records && is_nonce(key) {
            return Ok(None);
        }
        Ok(match self.state.entry(key).map_err(NotSimulated::Lookup)? {
            Known::Present(entry, live_until) => {
                let size = entry.to_xdr(Limits::none()).map_or(0, |xdr| xdr.len());
                self.bytes.set(self.bytes.get() + size);
                Some((entry, live_until))
            }
            Known::Absent => None,
            Known::Unknown => return Err(NotSimulated::Unknown(Box::new(key.clone()))),
        })
    }
}

impl<S: KnownState> SnapshotSource for PastState<'_, S> {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        if self.ended.borrow().is_some() {
            return Err(ENDED.into());
        }
        if let Some(known) = self.read.borrow().get(key) {
            return Ok(known.clone());
        }
        let found = self.look_up(key).map_err(|ended| {
            self.ended.replace(Some(ended));
            HostError::from(ENDED)
        })?;
        self.read.borrow_mut().insert(Rc::clone(key), found.clone());
        Ok(found)
    }
}

fn is_nonce(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)))
}

#[cfg(test)]
mod tests {
    use orrery_testkit::sandbox::{local, settings};
    use stellar_xdr::{
        ExtendFootprintTtlOp, ExtensionPoint, Hash, LedgerFootprint, LedgerKeyContractCode,
        Operation, OperationBody, SorobanResources, SorobanTransactionData, Transaction,
        TransactionExt,
    };

    use super::*;

    /// A state in which the code with a hash that begins with 0 is known not to exist.
    struct Nothing;

    impl KnownState for Nothing {
        type Error = ();

        fn entry(&self, key: &LedgerKey) -> Result<Known, ()> {
            Ok(match key {
                LedgerKey::ContractCode(code) if code.hash.0[0] == 0 => Known::Absent,
                LedgerKey::ContractCode(code) if code.hash.0[0] == 1 => Known::Unknown,
                _ => return Err(()),
            })
        }
    }

    fn ledger() -> PastLedger {
        PastLedger {
            sequence: LedgerSeq(7),
            close_time: 1_000,
            network: *local().id(),
            base_reserve: 5_000_000,
            state_size: 1_000,
            settings: settings(),
        }
    }

    /// The code whose hash begins with `first`, and ends with a number.
    fn code(first: u8, number: usize) -> LedgerKey {
        let mut hash = [0; 32];
        hash[0] = first;
        hash[24..].copy_from_slice(&number.to_be_bytes());
        LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(hash) })
    }

    /// A transaction that extends these.
    fn extends(keys: Vec<LedgerKey>) -> TransactionV1Envelope {
        let footprint =
            LedgerFootprint { read_only: keys.try_into().unwrap(), ..Default::default() };
        let resources = SorobanResources { footprint, ..Default::default() };
        let op = ExtendFootprintTtlOp { ext: ExtensionPoint::V0, extend_to: 10 };
        let operation =
            Operation { source_account: None, body: OperationBody::ExtendFootprintTtl(op) };
        let data = SorobanTransactionData { resources, ..Default::default() };
        let tx = Transaction {
            operations: vec![operation].try_into().unwrap(),
            ext: TransactionExt::V1(data),
            ..Default::default()
        };
        TransactionV1Envelope { tx, signatures: Default::default() }
    }

    fn simulated(
        ledger: &PastLedger,
        keys: Vec<LedgerKey>,
    ) -> Result<Simulation, NotSimulated<()>> {
        simulate_after(ledger, &Nothing, &extends(keys), AuthMode::Enforce, 0)
    }

    #[test]
    fn a_simulation_ends_at_what_is_not_known_and_at_its_limits() {
        let ledger = ledger();
        let many = |count: usize| (0..count).map(|number| code(0, number)).collect::<Vec<_>>();
        let simulation = simulated(&ledger, many(MOST_ENTRIES)).unwrap();
        assert_eq!(simulation.latest_ledger, LedgerSeq(7));
        let ended = simulated(&ledger, many(MOST_ENTRIES + 1));
        assert!(matches!(ended, Err(NotSimulated::TooMuch)), "{ended:?}");
        let ended = simulated(&ledger, vec![code(0, 1), code(1, 2), code(1, 3)]);
        assert!(
            matches!(&ended, Err(NotSimulated::Unknown(key)) if **key == code(1, 2)),
            "{ended:?}"
        );
        let ended = simulated(&ledger, vec![code(2, 1)]);
        assert!(matches!(ended, Err(NotSimulated::Lookup(()))), "{ended:?}");
    }

    #[test]
    fn settings_that_lack_something_or_allow_too_much_are_refused() {
        for id in SETTINGS {
            let mut ledger = ledger();
            ledger.settings.retain(|entry| match &entry.data {
                LedgerEntryData::ConfigSetting(setting) => setting.discriminant() != id,
                _ => true,
            });
            let ended = simulated(&ledger, Vec::new());
            assert!(matches!(ended, Err(NotSimulated::Settings(_))), "{id:?}: {ended:?}");
        }
        let mut generous = ledger();
        for entry in &mut generous.settings {
            if let LedgerEntryData::ConfigSetting(ConfigSettingEntry::ContractComputeV0(compute)) =
                &mut entry.data
            {
                compute.tx_max_instructions = MOST_INSTRUCTIONS + 1;
            }
        }
        let ended = simulated(&generous, Vec::new());
        assert!(matches!(ended, Err(NotSimulated::Settings(why)) if why.contains("1000000000")));
    }
}
