//! Input of a run: a transaction, what the network recorded of it, and a program.

use orrery_ledger::domain::{ContractId, LedgerSeq, NetworkId, TxHash};
use sha2::{Digest, Sha256};
use soroban_env_host::xdr::{
    AccountId, ContractEvent, HostFunction, LedgerEntryChanges, LedgerKey, ScVal,
    SorobanAuthorizationEntry,
};

use super::module::Module;

/// One transaction to be run again.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Ledger that contains the transaction.
    pub ledger: LedgerSeq,
    /// Close time of that ledger, in UNIX seconds.
    pub closed_at: u64,
    /// Network id: SHA-256 of the network's passphrase.
    pub network_id: NetworkId,
    /// Protocol version of that ledger. The host executes by its own, newest protocol; programs
    /// that ask for the protocol receive this one.
    pub protocol: u32,
    /// Base reserve in that ledger's header, in stroops.
    pub base_reserve: u32,
    /// Hash of the transaction.
    pub transaction: TxHash,
    /// Position of the transaction within its ledger, from 1.
    pub application_order: u32,
    /// Source account of the operation.
    pub source_account: AccountId,
    /// Host function that the transaction invokes.
    pub host_function: HostFunction,
    /// Authorization entries. When one of them is for a contract, authorization is checked as on
    /// the network, so that the contract's `__check_auth` runs; otherwise everything counts as
    /// authorized.
    pub authorization: Vec<SorobanAuthorizationEntry>,
    /// Keys of the footprint, which are looked up before the run. May be empty.
    pub footprint: Vec<LedgerKey>,
    /// What the network recorded; `None` leaves the run unchecked.
    pub recorded: Option<Recorded>,
}

impl Invocation {
    /// Returns the seed of the contracts' random numbers. It is the same in every run of a
    /// transaction, and differs from the network's.
    pub fn seed(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"orrery: random numbers of a run");
        hash.update(self.ledger.0.to_be_bytes());
        hash.update(self.transaction.0);
        hash.finalize().into()
    }
}

/// What the network recorded of a transaction.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Result of the host function.
    pub return_value: ScVal,
    /// Contract and system events in order, without diagnostic events.
    pub events: Vec<ContractEvent>,
    /// Ledger entry changes of the operation.
    pub changes: LedgerEntryChanges,
}

/// A program and the contracts whose code it replaces.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Module of the program.
    pub module: &'a Module,
    /// Contracts whose code the module replaces.
    pub contracts: &'a [ContractId],
}
