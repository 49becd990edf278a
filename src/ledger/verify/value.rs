//! The value in a header on which the validators agreed (`StellarValue`), and its signature
//! (CAP-34; the times in milliseconds of CAP-88, the dropped sets of CAP-83).

use ed25519_dalek::{Signature, VerifyingKey};

use super::fault::Rule;
use crate::decode::xdr::{
    Cursor, Depth, LedgerUpgradeType, StellarValueType as Kind, UpgradeType, VarArray, Xdr,
    XdrError,
};
use crate::domain::{Hash32, NetworkId, NodeId};

/// `ENVELOPE_TYPE_SCPVALUE`, which separates signatures of values from others.
const ENVELOPE_TYPE_SCPVALUE: i32 = 4;
/// The last protocol whose ledgers need no signature. A ledger that upgrades to the next one was
/// agreed on under this one.
const LAST_UNSIGNED_PROTOCOL: u32 = 13;

/// What a header binds, and who signed it.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// Protocol after the ledger's upgrades.
    protocol: u32,
    /// Whether an upgrade of this ledger has set it.
    upgraded: bool,
    /// `previousLedgerHash`
    pub previous: &'a [u8; 32],
    /// `txSetHash`
    pub set: &'a [u8; 32],
    /// `closeTime`, UNIX seconds.
    close_time: u64,
    /// `txSetResultHash`
    pub results: &'a [u8; 32],
    signed: Option<Signed<'a>>,
}

/// The signature of a value.
#[derive(Debug, Clone, Copy)]
struct Signed<'a> {
    node: &'a [u8; 32],
    signature: &'a [u8],
    /// `closeTimeMs`, if the signature covers it.
    close_time_ms: Option<u64>,
    /// The set that was proposed, if it was dropped.
    dropped: Option<&'a [u8; 32]>,
}

/// What a validator signs when it proposes a value, and its signature.
#[derive(Debug, Clone, Copy)]
pub struct Proposal<'a> {
    /// Hash of the transaction set.
    pub set: &'a [u8; 32],
    /// `closeTime`, UNIX seconds.
    pub close_time: u64,
    /// `closeTimeMs`, UNIX milliseconds, of the kinds that have it.
    pub close_time_ms: Option<u64>,
    /// Key of the validator.
    pub node: &'a [u8; 32],
    /// Its signature.
    pub signature: &'a [u8],
}

impl Proposal<'_> {
    /// Checks the signature. Returns the validator.
    pub fn signer(&self, network: &NetworkId) -> Result<NodeId, Rule> {
        let node = NodeId(*self.node);
        let mut message = Vec::with_capacity(32 + 4 + 32 + 8 + 8);
        message.extend_from_slice(network.as_bytes());
        message.extend_from_slice(&ENVELOPE_TYPE_SCPVALUE.to_be_bytes());
        message.extend_from_slice(self.set);
        message.extend_from_slice(&self.close_time.to_be_bytes());
        if let Some(milliseconds) = self.close_time_ms {
            message.extend_from_slice(&milliseconds.to_be_bytes());
        }
        Signature::from_slice(self.signature)
            .and_then(|signature| {
                VerifyingKey::from_bytes(self.node)?.verify_strict(&message, &signature)
            })
            .map(|()| node)
            .map_err(|_| Rule::Signature(node))
    }
}

impl<'a> Value<'a> {
    /// Reads the beginning of an XDR `LedgerHeader`.
    ///
    /// # Errors
    /// When the bytes are not a header.
    pub fn of_header(xdr: &'a [u8]) -> Result<Self, XdrError> {
        let cursor = &mut Cursor::new(xdr);
        let protocol = cursor.u32()?;
        let previous = cursor.array()?;
        let set = cursor.array()?;
        let close_time = cursor.u64()?;
        let upgrades = VarArray::<UpgradeType, 6>::bytes(cursor, Depth::LIMIT)?;
        let kind = cursor.i32()?;
        let signed = match kind {
            Kind::BASIC => None,
            _ => Some(Signed::read(kind, cursor)?),
        };
        let results = cursor.array()?;
        let upgraded = upgrades_protocol(upgrades)?;
        Ok(Self { protocol, upgraded, previous, set, close_time, results, signed })
    }

    /// Returns whether the ledger's transactions may have been applied under a protocol that satisfies
    /// `is`: that of the header, or the one before if this ledger upgrades it.
    pub fn applied_under(&self, is: impl Fn(u32) -> bool) -> bool {
        is(self.protocol) || (self.upgraded && is(self.protocol.saturating_sub(1)))
    }

    /// Whether the network dropped the transaction set that was proposed.
    pub fn drops_set(&self) -> bool {
        self.signed.is_some_and(|signed| signed.dropped.is_some())
    }

    /// What the validator has signed; `None` of a value without a signature.
    pub fn proposal(&self) -> Option<Proposal<'a>> {
        self.signed.map(|signed| Proposal {
            set: signed.dropped.unwrap_or(self.set),
            close_time: self.close_time,
            close_time_ms: signed.close_time_ms,
            node: signed.node,
            signature: signed.signature,
        })
    }

    /// Checks the signature. Returns the validator, if its signature attests the ledger before:
    /// that of a dropped set does not, because it can be put on any ledger without transactions.
    pub fn signer(&self, network: &NetworkId) -> Result<Option<NodeId>, Rule> {
        let Some(proposal) = self.proposal() else {
            // A ledger that upgrades to protocol 14 was agreed on under protocol 13.
            let needed = self.protocol > LAST_UNSIGNED_PROTOCOL + 1;
            return if needed { Err(Rule::Unsigned) } else { Ok(None) };
        };
        let node = proposal.signer(network)?;
        Ok(Some(node).filter(|_| !self.drops_set()))
    }
}

impl<'a> Signed<'a> {
    /// Reads what follows the kind in a `StellarValueExt`.
    fn read(kind: i32, cursor: &mut Cursor<'a>) -> Result<Self, XdrError> {
        let close_time_ms = match kind {
            Kind::SIGNED_MS | Kind::EMPTY_TX_SET_MS => Some(cursor.u64()?),
            Kind::SIGNED | Kind::EMPTY_TX_SET => None,
            _ => return Err(XdrError::UnknownValue),
        };
        let dropped = match kind {
            Kind::EMPTY_TX_SET | Kind::EMPTY_TX_SET_MS => {
                let set = cursor.array()?;
                // previousLedgerHash, previousLedgerVersion
                cursor.take(32 + 4)?;
                Some(set)
            }
            _ => None,
        };
        // PUBLIC_KEY_TYPE_ED25519
        if cursor.i32()? != 0 {
            return Err(XdrError::UnknownValue);
        }
        let node = cursor.array()?;
        let length = cursor.length(64)? as usize;
        let signature = cursor.take(length)?;
        cursor.padding(length)?;
        Ok(Self { node, signature, close_time_ms, dropped })
    }
}

/// Returns the 32 bytes as a hash.
pub fn hash(bytes: &[u8; 32]) -> Hash32 {
    Hash32(*bytes)
}

/// Returns whether one of the upgrades in a header, an XDR list of opaque `LedgerUpgrade`s, is that of
/// the protocol.
fn upgrades_protocol(upgrades: &[u8]) -> Result<bool, XdrError> {
    let cursor = &mut Cursor::new(upgrades);
    let mut found = false;
    for _ in 0..cursor.u32()? {
        let length = cursor.length(128)? as usize;
        let upgrade = cursor.take(length)?;
        cursor.padding(length)?;
        let kind = upgrade.first_chunk().copied().map(i32::from_be_bytes);
        found |= kind == Some(LedgerUpgradeType::VERSION);
    }
    Ok(found)
}
