//! Stored form of what a run emitted, from which the tables are built.
//!
//! Layout of a value, integers big-endian: version (1 byte), hash of the transaction (32), close
//! time of its ledger (8, UNIX seconds in version 1 and UNIX milliseconds in version 2), number of
//! emits (4), and for each emit the contract (32), the length of its target (4), the target, the
//! length of its fields (4) and the fields as XDR `ScMap`.

use stellar_xdr::{Limits, ReadXdr, ScMap, WriteXdr};

use orrery_ledger::domain::{CloseTime, ContractId, DEEPEST_VALUE, Emit, TxHash};
use orrery_store::TransactionPosition;

const SECONDS: u8 = 1;
const MILLISECONDS: u8 = 2;
/// Limits for decoding fields. The contract host already bounds their nesting; these limit the cost
/// of damaged data.
const FIELD_LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 16 << 20 };

/// The emits of one run, with the transaction and close time that their rows contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRows {
    /// Hash of the transaction (outer hash of a fee bump).
    pub transaction: TxHash,
    /// Close time of the transaction's ledger.
    pub closed_at: CloseTime,
    /// Emits in the order in which they were made.
    pub emits: Vec<Emit>,
}

/// A run in the row log.
#[derive(Debug)]
pub struct LoggedRun {
    /// Its number in the log.
    pub number: u64,
    /// Its transaction.
    pub position: TransactionPosition,
    /// What it emitted, in stored form.
    pub stored: Vec<u8>,
}

/// A stored value does not have the expected layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stored rows of a run are damaged")]
pub struct Damaged;

impl RunRows {
    /// The rows of a run without any.
    pub fn none(transaction: TxHash, closed_at: CloseTime) -> Self {
        Self { transaction, closed_at, emits: Vec::new() }
    }

    /// Returns the stored form.
    ///
    /// # Errors
    /// [`Damaged`] when a value is nested too deeply or is too long for the stored form.
    pub fn encode(&self) -> Result<Vec<u8>, Damaged> {
        let mut out = Vec::with_capacity(64 + 256 * self.emits.len());
        let (version, time) = match self.closed_at {
            CloseTime::Seconds(seconds) => (SECONDS, seconds),
            CloseTime::Milliseconds(milliseconds) => (MILLISECONDS, milliseconds),
        };
        out.push(version);
        out.extend_from_slice(self.transaction.as_bytes());
        out.extend_from_slice(&time.to_be_bytes());
        out.extend_from_slice(&length(self.emits.len())?);
        for emit in &self.emits {
            out.extend_from_slice(emit.contract.as_bytes());
            out.extend_from_slice(&length(emit.target.len())?);
            out.extend_from_slice(emit.target.as_bytes());
            let fields = emit.fields.to_xdr(FIELD_LIMITS).map_err(|_| Damaged)?;
            out.extend_from_slice(&length(fields.len())?);
            out.extend_from_slice(&fields);
        }
        Ok(out)
    }

    /// Decodes the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut rest = Reader(bytes);
        let [version] = rest.array()?;
        let transaction = TxHash::from(rest.array()?);
        let time = u64::from_be_bytes(rest.array()?);
        let closed_at = match version {
            SECONDS => CloseTime::Seconds(time),
            MILLISECONDS => CloseTime::Milliseconds(time),
            _ => return Err(Damaged),
        };
        let count = rest.length()?;
        let mut emits = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let contract = ContractId(rest.array()?);
            let length = rest.length()?;
            let target = String::from_utf8(rest.take(length)?.to_vec()).map_err(|_| Damaged)?;
            let length = rest.length()?;
            let fields = ScMap::from_xdr(rest.take(length)?, FIELD_LIMITS).map_err(|_| Damaged)?;
            emits.push(Emit { contract, target, fields });
        }
        if !rest.0.is_empty() {
            return Err(Damaged);
        }
        Ok(Self { transaction, closed_at, emits })
    }
}

/// Returns the stored form of a length.
pub fn length(length: usize) -> Result<[u8; 4], Damaged> {
    Ok(u32::try_from(length).map_err(|_| Damaged)?.to_be_bytes())
}

/// Reads stored bytes from the front.
#[derive(Debug, Clone)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes this many bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes as many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.try_into().map_err(|_| Damaged)
    }

    /// Takes a length.
    pub fn length(&mut self) -> Result<usize, Damaged> {
        usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| Damaged)
    }

    /// Takes a length, and as many bytes as it says.
    pub fn part(&mut self) -> Result<&'a [u8], Damaged> {
        let length = self.length()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{ScMapEntry, ScSymbol, ScVal};

    use super::*;

    fn run() -> RunRows {
        let entry = ScMapEntry {
            key: ScVal::Symbol(ScSymbol("amount".try_into().unwrap())),
            val: ScVal::U32(7),
        };
        let emit = |target: &str| Emit {
            contract: ContractId([3; 32]),
            target: target.to_owned(),
            fields: ScMap(vec![entry.clone()].try_into().unwrap()),
        };
        let emits = vec![emit("deposit"), emit("")];
        let closed_at = CloseTime::Seconds(1_700_000_000);
        RunRows { transaction: TxHash::from([9; 32]), closed_at, emits }
    }

    #[test]
    fn run_rows_round_trip() {
        for closed_at in [CloseTime::Seconds(7), CloseTime::Milliseconds(7_001)] {
            let run = RunRows { closed_at, ..run() };
            assert_eq!(RunRows::decode(&run.encode().unwrap()), Ok(run));
        }
    }

    #[test]
    fn truncated_and_extended_rows_are_reported_as_damaged() {
        let whole = run().encode().unwrap();
        for end in 0..whole.len() {
            assert_eq!(RunRows::decode(&whole[..end]), Err(Damaged), "{end}");
        }
        assert_eq!(RunRows::decode(&[whole.as_slice(), &[0]].concat()), Err(Damaged));
    }
}
