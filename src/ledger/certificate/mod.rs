//! Certificates: a file which proves that these, and only these, are the events that invocations of
//! one contract emitted in a range of ledgers. [`Writer`] makes one from ledgers, [`check`] accepts
//! or refuses one, and needs nothing else than the validators that it trusts.
//!
//! The certificate holds what consensus binds: of the range, the headers, the results, and return
//! value and events of all invocations, because only so it is shown that there are no others; of the
//! ledgers after it (the tail), the headers, and the transaction sets of those whose signatures
//! count. `docs/trust.md` specifies the format.
//!
//! `format` names its parts, `tail` decides which signatures count and where the certificate ends,
//! for [`write`](mod@write) and [`check`](mod@check) alike.

mod check;
mod error;
mod format;
mod tail;
mod write;

use crate::decode::xdr::Cursor;
use crate::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, NetworkId, RpcEventId, TxHash};

pub use check::check;
pub use error::CertificateError;
pub use tail::Attestation;
pub use write::{Writer, Written};

/// What a certificate is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The network.
    pub network: NetworkId,
    /// The contract.
    pub contract: ContractId,
    /// The ledgers.
    pub range: LedgerRange,
}

impl Claim {
    /// Reads what a certificate says that it is about, without checking it: to choose the validators
    /// that [`check`] gets.
    ///
    /// # Errors
    /// When the bytes are not the beginning of a certificate.
    pub fn read(certificate: &[u8]) -> Result<Self, CertificateError> {
        format::read_head(&mut Cursor::new(certificate))
    }
}

/// What a certificate proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// What it is about.
    pub claim: Claim,
    /// All events of the contract's invocations, in the order of the ledgers.
    pub events: Vec<CertifiedEvent<'a>>,
    /// Number of successful invocations in the range, of all contracts.
    pub invocations: u64,
    /// The signatures that attest it, in the order of the ledgers.
    pub attested_by: Vec<Attestation>,
    /// SHA-256 over claim and events: certificates that prove the same have the same.
    pub digest: Hash32,
}

/// An event that a certificate proves, in the form that consensus has bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedEvent<'a> {
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Hash of its transaction; of the outer transaction for a fee bump.
    pub transaction: TxHash,
    /// Its id as Stellar RPC returns it.
    pub rpc_id: RpcEventId,
    /// XDR `ContractEvent`.
    pub xdr: &'a [u8],
    /// Its topics, each an XDR `ScVal`.
    pub topics: Vec<&'a [u8]>,
    /// Its data, XDR `ScVal`.
    pub data: &'a [u8],
}
