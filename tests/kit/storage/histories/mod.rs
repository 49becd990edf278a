//! Random histories of contracts' storage: ledgers that link and that ingestion accepts, and the true
//! state at the end of each.
//!
//! A world of contracts and keys is changed transaction by transaction, as the network would change
//! it, and each change is written into the metadata in the shape that stellar-core gives it:
//! transactions of protocols 20 to 22 one after the other, from protocol 23 on in stages of clusters
//! with deferred bumps of the TTL (CAP-63), restoring by hand and by itself (CAP-62, CAP-66),
//! evictions, failed transactions, fee bumps.

mod closing;
mod keys;
mod transactions;
mod world;

use std::collections::BTreeMap;

use orrery_ledger::domain::Network;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stellar_xdr::{Hash, LedgerKey};

use super::{KeyHash, Kind, Value};
use transactions::Closing;
use world::World;

/// Where a history begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With ledger 2: nothing was there before.
    Genesis,
    /// With ledgers of protocol 19, or with the one that upgrades to protocol 20.
    Protocol20,
    /// Somewhere: contracts, entries and archived entries exist.
    Middle,
}

/// Size of a history.
#[derive(Debug, Clone)]
pub struct Shape {
    pub start: Start,
    /// Protocol at the start; 20 after [`Start::Protocol20`].
    pub protocol: u32,
    /// Number of ledgers.
    pub ledgers: u32,
    /// Maximum number of transactions in a ledger of protocols 20 to 22, and of those in a cluster.
    pub transactions: usize,
    pub contracts: usize,
    /// Whether metadata of protocols 20 to 22 was made again by a later stellar-core: of version 4,
    /// and with RESTORED.
    pub regenerated: bool,
}

impl Shape {
    /// A small history that a test can ask about every key at every ledger.
    pub fn small(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x5eed);
        let start = match rng.random_range(0..4) {
            0 => Start::Genesis,
            1 => Start::Protocol20,
            _ => Start::Middle,
        };
        Self {
            start,
            protocol: *[20, 21, 22, 22, 23, 23, 25, 26].get(rng.random_range(0..8)).unwrap_or(&23),
            ledgers: rng.random_range(6..22),
            transactions: rng.random_range(1..4),
            contracts: rng.random_range(1..4),
            regenerated: rng.random_bool(0.25),
        }
    }
}

/// A key's true state at the end of a ledger. Dead temporary data is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrueEntry {
    pub value: Value,
    pub modified_ledger: u32,
    /// Of an evicted entry the TTL that it had.
    pub live_until: u32,
    pub archived: bool,
    /// Whether it is in the hot archive.
    pub evicted: bool,
}

/// What a transaction or an eviction really did to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrueChange {
    pub ledger: u32,
    /// Position in application order, from 1; `None` of evictions.
    pub order: Option<u32>,
    pub key_hash: KeyHash,
    /// `None` of an equal update, and of dead temporary data that is erased.
    pub kind: Option<Kind>,
    /// Whether the metadata names the value after it.
    pub names_value: bool,
    /// Whether the metadata names the value before it, together with the ledger that wrote it.
    pub names_before: bool,
    pub value: Option<Value>,
    pub live_until: Option<u32>,
}

/// One ledger of a history.
#[derive(Debug, Clone)]
pub struct MadeLedger {
    pub sequence: u32,
    /// Protocol in the header.
    pub protocol: u32,
    /// XDR `LedgerCloseMeta`.
    pub xdr: Vec<u8>,
    /// Hashes of the transactions, in application order.
    pub transactions: Vec<[u8; 32]>,
    /// Every entry of contract data and code that exists at its end; nonces, too.
    pub state: BTreeMap<KeyHash, TrueEntry>,
    /// Dead temporary data that is not evicted yet.
    pub dead: BTreeMap<KeyHash, TrueEntry>,
    /// What it changed, in order; no nonces.
    pub changes: Vec<TrueChange>,
    /// Names of what happened in it ([`CASES`]).
    pub cases: Vec<&'static str>,
}

/// Everything that happens in histories.
pub const CASES: [&str; 33] = [
    "contract created",
    "code created",
    "nonce",
    "temporary created",
    "persistent created",
    "temporary created over dead data",
    "dead data erased",
    "updated",
    "updated and extended",
    "equal",
    "equal and extended",
    "extended by a writer",
    "extended by a reader at once",
    "extended by a reader, deferred",
    "bump that raises nothing",
    "written and left as it was",
    "removed",
    "instance updated and data removed",
    "several changes of a key",
    "restored by hand without RESTORED",
    "restored by hand, RESTORED added later",
    "restored by hand before its eviction",
    "restored by hand from the hot archive",
    "restored by itself before its eviction",
    "restored by itself from the hot archive",
    "restored before its eviction and written",
    "restored from the hot archive and written",
    "restored before its eviction and removed",
    "restored from the hot archive and removed",
    "temporary evicted",
    "persistent evicted",
    "failed with changes",
    "fee bump",
];

/// Consecutive ledgers, and what is true.
#[derive(Debug, Clone)]
pub struct StorageHistory {
    pub network: Network,
    pub shape: Shape,
    pub ledgers: Vec<MadeLedger>,
    /// Every key that a contract may have had, and code: also those that never existed.
    pub keys: BTreeMap<KeyHash, LedgerKey>,
    /// The last ledger that a range may begin with to know everything, if it is one of these.
    pub origin: Option<u32>,
    /// Keys of nonces.
    pub nonces: BTreeMap<KeyHash, LedgerKey>,
    /// Contracts by id, with the ledger that created them; `None` if it was none of these ledgers.
    pub contracts: BTreeMap<[u8; 32], Option<u32>>,
}

impl StorageHistory {
    /// A small history.
    pub fn small(seed: u64) -> Self {
        Self::made(seed, Shape::small(seed))
    }

    /// A history of this shape.
    pub fn made(seed: u64, shape: Shape) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let network = Network::from_name_or_passphrase("local");
        let mut world = World::new(rng, shape.contracts);
        let mut chain = Chain::start(rng, &shape, network.clone());
        if shape.start == Start::Middle {
            for _ in 0..rng.random_range(6..16) {
                chain.close(rng, &mut world, &shape);
            }
        }
        let known: Vec<[u8; 32]> = world.created.keys().copied().collect();
        let first = chain.next;
        let ledgers: Vec<_> =
            (0..shape.ledgers).map(|_| chain.close(rng, &mut world, &shape)).collect();
        let created = |id: &[u8; 32]| world.created.get(id).copied().filter(|at| *at >= first);
        let contracts = world.contracts.iter().map(|id| (*id, created(id))).collect();
        debug_assert!(known.iter().all(|id| created(id).is_none()));
        let origin = match shape.start {
            Start::Genesis => Some(2),
            Start::Protocol20 => {
                let upgraded = ledgers.iter().find(|one| one.protocol >= 20);
                upgraded.or(ledgers.last()).map(|one| one.sequence)
            }
            Start::Middle => None,
        };
        let (keys, nonces) = (world.keys, world.nonces);
        Self { network, shape, ledgers, origin, keys, nonces, contracts }
    }

    /// Sequence number of the first ledger.
    pub fn first(&self) -> u32 {
        self.ledgers[0].sequence
    }

    /// Sequence number of the last ledger.
    pub fn last(&self) -> u32 {
        self.first() + self.shape.ledgers - 1
    }

    /// The ledger of this sequence number.
    pub fn ledger(&self, sequence: u32) -> &MadeLedger {
        &self.ledgers[(sequence - self.first()) as usize]
    }

    /// What is true of a key at the end of a ledger.
    pub fn truth(&self, key: &KeyHash, sequence: u32) -> Option<&TrueEntry> {
        self.ledger(sequence).state.get(key)
    }
}

/// The end of the chain that is being made.
struct Chain {
    network: Network,
    next: u32,
    previous_hash: Hash,
    protocol: u32,
    /// The ledger that last changed a setting.
    setting_modified: u32,
    /// Distinguishes transactions.
    number: i64,
}

impl Chain {
    fn start(rng: &mut StdRng, shape: &Shape, network: Network) -> Self {
        let (next, protocol) = match shape.start {
            Start::Genesis => (2, shape.protocol),
            Start::Protocol20 => (rng.random_range(3..2000), 19),
            Start::Middle => (rng.random_range(100..60_000_000), shape.protocol),
        };
        let previous_hash = Hash(rng.random());
        Self { network, next, previous_hash, protocol, setting_modified: 1, number: 0 }
    }

    /// Closes a ledger. Its transactions run under the protocol of the ledger before; an upgrade
    /// counts from the next one on, though its header has it.
    fn close(&mut self, rng: &mut StdRng, world: &mut World, shape: &Shape) -> MadeLedger {
        let (sequence, protocol) = (self.next, self.protocol);
        let upgrade = self.upgrade(rng);
        let mut closing = Closing::new(sequence, protocol, &mut self.number, world);
        if protocol >= 20 {
            closing.run(rng, shape);
            closing.evict(rng);
        }
        let drafts = closing.finish();
        let (changes, cases) = (drafts.changes.clone(), drafts.cases.clone());
        let to_close = closing::ToClose {
            network: &self.network,
            sequence,
            protocol,
            upgrade,
            previous_hash: &self.previous_hash,
            setting_modified: self.setting_modified,
            regenerated: shape.regenerated,
        };
        let (xdr, hash, transactions) = closing::ledger(rng, to_close, drafts);
        self.next += 1;
        self.previous_hash = hash;
        if let Some(upgrade) = upgrade {
            (self.protocol, self.setting_modified) = (upgrade, sequence);
        }
        let (state, dead) = (world.state_at(sequence), world.dead_at(sequence));
        let protocol = self.protocol;
        MadeLedger { sequence, protocol, xdr, transactions, state, dead, changes, cases }
    }

    fn upgrade(&self, rng: &mut StdRng) -> Option<u32> {
        match self.protocol {
            19 => rng.random_bool(0.6).then_some(20),
            20..=22 if rng.random_bool(0.12) => Some(rng.random_range(self.protocol + 1..=23)),
            23..=25 if rng.random_bool(0.06) => Some(self.protocol + 1),
            _ => None,
        }
    }
}
