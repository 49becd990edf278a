//! The parts of a certificate, as they are written and read. A block is a length (32 bits, big
//! endian) and so many bytes.

use sha2::{Digest, Sha256};

use super::error::{CertificateError, unreadable};
use super::{CertifiedEvent, Claim};
use crate::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, RpcEventId, TxHash};

use crate::decode::xdr::{Cursor, Part, Visit, XdrError};

/// First bytes of a certificate, with the version of the format.
const MAGIC: [u8; 8] = *b"ORRCERT1";

/// What precedes each ledger of the tail.
pub struct Kind;

impl Kind {
    /// A header. The signature in it does not count.
    pub const HEADER: u32 = 0;
    /// A header, and the transaction set that links its signature to the ledger before.
    pub const SIGNED: u32 = 1;
    /// A signed value, and its transaction set: the last ledger.
    pub const LAST: u32 = 2;
}

/// Returns the beginning of a certificate.
pub fn head(claim: &Claim) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(claim.network.as_bytes());
    head.extend_from_slice(claim.contract.as_bytes());
    head.extend_from_slice(&claim.range.first.0.to_be_bytes());
    head.extend_from_slice(&claim.range.last.0.to_be_bytes());
    head
}

/// Reads the beginning of a certificate.
pub fn read_head(cursor: &mut Cursor<'_>) -> Result<Claim, CertificateError> {
    let mut fields = || -> Result<Claim, XdrError> {
        if cursor.array()? != &MAGIC {
            return Err(XdrError::UnknownValue);
        }
        let (network, contract) = (Hash32(*cursor.array()?), ContractId(*cursor.array()?));
        let range = LedgerRange::new(LedgerSeq(cursor.u32()?), LedgerSeq(cursor.u32()?));
        Ok(Claim { network, contract, range })
    };
    let claim = fields().map_err(|_| {
        CertificateError(
            "this is not a certificate, or one of a format that this version of Orrery does not \
             know: give a file that `orrery prove` has written"
                .to_owned(),
        )
    })?;
    if claim.range.is_empty() {
        return Err(CertificateError::no_range(claim.range));
    }
    Ok(claim)
}

/// Appends a block of these parts, which are parts of one ledger: far below 4 GiB.
pub fn write_block(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Reads a block; `what` it holds is for the error.
pub fn read_block<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<&'a [u8], String> {
    let length = cursor.u32().map_err(unreadable(what))?;
    cursor.take(length as usize).map_err(unreadable(what))
}

/// The digest at the end of a certificate: over its beginning, and each event of the contract with
/// its ledger and transaction.
pub struct Statement(Sha256);

impl Statement {
    /// Begins with what the certificate is about.
    pub fn new(claim: &Claim) -> Self {
        Self(Sha256::new_with_prefix(head(claim)))
    }

    /// Adds an event.
    pub fn add(&mut self, event: &CertifiedEvent<'_>) {
        self.0.update(event.ledger.0.to_be_bytes());
        self.0.update(event.transaction.as_bytes());
        self.0.update(event.xdr);
    }

    /// Returns the digest.
    pub fn finish(self) -> Hash32 {
        Hash32(self.0.finalize().into())
    }
}

/// Collects the events of one contract from the pre-image of an invocation.
pub struct EventsOf<'c, 'a> {
    contract: &'c ContractId,
    ledger: LedgerSeq,
    transaction: TxHash,
    /// 1-based position of the transaction.
    order: u32,
    /// Number of events so far, of all contracts.
    count: u32,
    topics: Vec<&'a [u8]>,
    data: &'a [u8],
    /// The events found.
    pub found: Vec<CertifiedEvent<'a>>,
}

impl<'c> EventsOf<'c, '_> {
    /// Begins the invocation of a transaction, whose 1-based position in the ledger is `order`.
    pub fn new(
        contract: &'c ContractId,
        ledger: LedgerSeq,
        transaction: TxHash,
        order: u32,
    ) -> Self {
        let (topics, data, found) = (Vec::new(), [].as_slice(), Vec::new());
        Self { contract, ledger, transaction, order, count: 0, topics, data, found }
    }
}

impl<'a> Visit<'a> for EventsOf<'_, 'a> {
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        match part {
            Part::Topic => self.topics.push(xdr),
            Part::EventData => self.data = xdr,
            Part::OperationEvent => {
                let cursor = &mut Cursor::new(xdr);
                // ext
                cursor.u32()?;
                let is_of = cursor.flag()? && cursor.array()? == self.contract.as_bytes();
                let topics = std::mem::take(&mut self.topics);
                let (ledger, transaction, data) = (self.ledger, self.transaction, self.data);
                let rpc_id = RpcEventId::new(ledger.0, self.order, 0, self.count);
                self.count += 1;
                if is_of {
                    let event = CertifiedEvent { ledger, transaction, rpc_id, xdr, topics, data };
                    self.found.push(event);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
