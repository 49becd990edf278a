//! Checks a certificate.

use super::error::{CertificateError, Wrong};
use super::format::{Cursor, EventsOf, Kind, Statement, read_block, read_head};
use super::tail::Tail;
use super::{Certificate, CertifiedEvent, Claim};
use crate::decode::HeaderView;
use crate::decode::xdr::{
    Depth, Header, InvokeHostFunctionSuccessPreImage, Part, TransactionResultSet, Visit, Xdr,
    XdrError,
};
use crate::domain::{Hash32, LedgerHash, LedgerSeq, NetworkId, TxHash};
use crate::validators::Validators;
use crate::verify::outcome::Outcome;
use crate::verify::sha256;
use crate::verify::value::{Proposal, Value};

/// Sizes of a signed value: time, key and signature; before protocol 30, and since with the time in
/// milliseconds.
const VALUE_LENGTHS: [usize; 2] = [8 + 32 + 64, 8 + 8 + 32 + 64];

/// Checks a certificate of a network, whose validators are those that the caller trusts: they must
/// not be taken from the certificate or from where it came from.
///
/// # Errors
/// The first reason why it proves nothing.
pub fn check<'a>(
    certificate: &'a [u8],
    network: &NetworkId,
    validators: &Validators,
) -> Result<Certificate<'a>, CertificateError> {
    let mut cursor = Cursor::new(certificate);
    let claim = read_head(&mut cursor)?;
    if claim.network != *network {
        return Err(CertificateError::Network { found: claim.network, wanted: *network });
    }
    let mut checker = Checker {
        cursor,
        claim,
        previous: None,
        events: Vec::new(),
        invocations: 0,
        tail: Tail::new(validators),
    };
    let at = |ledger| move |wrong| CertificateError::Ledger { ledger, wrong };
    for ledger in (claim.range.first.0..=claim.range.last.0).map(LedgerSeq) {
        checker.check_ledger(ledger).map_err(at(ledger))?;
    }
    let mut last = claim.range.last;
    let mut ended = false;
    while !ended {
        last = last.next().ok_or(Wrong::NoNext).map_err(at(last))?;
        ended = checker.ledger_of_tail(last).map_err(at(last))?;
    }
    checker.end(last)
}

struct Checker<'a, 'v> {
    cursor: Cursor<'a>,
    claim: Claim,
    /// Hash of the ledger before.
    previous: Option<LedgerHash>,
    events: Vec<CertifiedEvent<'a>>,
    invocations: u64,
    tail: Tail<'v>,
}

impl<'a> Checker<'a, '_> {
    /// Checks a ledger of the range.
    fn check_ledger(&mut self, ledger: LedgerSeq) -> Result<(), Wrong> {
        let value = self.header(ledger)?;
        let results = read_block(&mut self.cursor, "results")?;
        if sha256(&[results]) != *value.results {
            return Err(Wrong::Results);
        }
        let mut pairs = Pairs::default();
        walk::<TransactionResultSet>(results, &mut pairs, "results")?;
        for (order, (transaction, result)) in (1..).zip(pairs.0) {
            let outcome = Outcome::of_successful(result)
                .map_err(|reason| Wrong::Unreadable { what: "results", reason })?;
            let Some((Outcome { operations, .. }, named)) =
                outcome.and_then(|outcome| Some((outcome, outcome.invocation?.1)))
            else {
                continue;
            };
            if operations != 1 {
                return Err(Wrong::Operations(transaction));
            }
            self.invocation(ledger, transaction, order, named)?;
        }
        Ok(())
    }

    /// Checks an invocation, and takes the events of the contract.
    fn invocation(
        &mut self,
        ledger: LedgerSeq,
        transaction: TxHash,
        order: u32,
        named: &[u8; 32],
    ) -> Result<(), Wrong> {
        let pre_image = read_block(&mut self.cursor, "invocation")?;
        if sha256(&[pre_image]) != *named {
            return Err(Wrong::Invocation(transaction));
        }
        let mut events = EventsOf::new(&self.claim.contract, ledger, transaction, order);
        walk::<InvokeHostFunctionSuccessPreImage>(pre_image, &mut events, "invocation")?;
        self.events.append(&mut events.found);
        self.invocations += 1;
        Ok(())
    }

    /// Checks a ledger after the range. Returns whether it is the last one.
    fn ledger_of_tail(&mut self, ledger: LedgerSeq) -> Result<bool, Wrong> {
        let kind = self.cursor.u32();
        match kind.map_err(|reason| Wrong::Unreadable { what: "kind", reason })? {
            kind @ (Kind::HEADER | Kind::SIGNED) => {
                let previous = self.previous;
                let value = self.header(ledger)?;
                let counts = self.tail.add(ledger, value.signer(&self.claim.network)?);
                match (counts, kind) {
                    (true, Kind::SIGNED) => {
                        if sha256(&[self.set(previous)?]) != *value.set {
                            return Err(Wrong::Set);
                        }
                    }
                    (false, Kind::HEADER) => {}
                    (false, _) => return Err(Wrong::NeedsNoSet),
                    (true, _) => {
                        let signed = self.tail.counted.last();
                        let who = signed.map(|signed| signed.organisation.clone());
                        return Err(Wrong::NeedsSet(who.unwrap_or_default()));
                    }
                }
                if self.tail.is_complete() { Err(Wrong::Ends) } else { Ok(false) }
            }
            Kind::LAST => {
                let value = read_block(&mut self.cursor, "signed value")?;
                let set = sha256(&[self.set(self.previous)?]);
                let signer = proposal(value, &set)
                    .map_err(|reason| Wrong::Unreadable { what: "signed value", reason })?
                    .signer(&self.claim.network)?;
                let counts = self.tail.add(ledger, Some(signer));
                let (signed, needed) = self.tail.progress();
                if counts && signed == needed {
                    return Ok(true);
                }
                Err(Wrong::TooFew { signed, needed })
            }
            kind => Err(Wrong::Kind(kind)),
        }
    }

    /// Reads a header, and checks that it is that of this ledger and follows the one before.
    fn header(&mut self, ledger: LedgerSeq) -> Result<Value<'a>, Wrong> {
        let xdr = read_block(&mut self.cursor, "header")?;
        let mut header = HeaderView::default();
        walk::<Header>(xdr, &mut header, "header")?;
        if header.sequence != ledger {
            return Err(Wrong::Sequence(header.sequence));
        }
        let names = header.previous_hash;
        match self.previous.replace(Hash32(sha256(&[xdr]))) {
            Some(previous) if previous != names => return Err(Wrong::Link { names, previous }),
            _ => {}
        }
        Value::of_header(xdr).map_err(|reason| Wrong::Unreadable { what: "header", reason })
    }

    /// Reads the pre-image of a `txSetHash`, and checks that it follows the ledger before, whose hash
    /// it begins with (`TransactionSet`) or has after its version (`GeneralizedTransactionSet`).
    fn set(&mut self, previous: Option<LedgerHash>) -> Result<&'a [u8], Wrong> {
        let set = read_block(&mut self.cursor, "transaction set")?;
        let previous = previous.unwrap_or_default();
        let follows = [0, 4].map(|at| set.get(at..at + 32) == Some(previous.as_bytes()));
        if follows.contains(&true) { Ok(set) } else { Err(Wrong::SetLink(previous)) }
    }

    /// Checks what follows the last ledger.
    fn end(mut self, last: LedgerSeq) -> Result<Certificate<'a>, CertificateError> {
        let mut statement = Statement::new(&self.claim);
        self.events.iter().for_each(|event| statement.add(event));
        let digest = statement.finish();
        let named = self.cursor.array().map_err(|reason| CertificateError::Ledger {
            ledger: last,
            wrong: Wrong::Unreadable { what: "digest", reason },
        })?;
        if named != digest.as_bytes() {
            let range = self.claim.range;
            return Err(CertificateError::Digest { first: range.first, last: range.last });
        }
        if let count @ 1.. = self.cursor.rest().len() {
            return Err(CertificateError::Trailing { last, count });
        }
        let Self { claim, events, invocations, tail, .. } = self;
        Ok(Certificate { claim, events, invocations, attested_by: tail.counted, digest })
    }
}

/// Reads a signed value for a transaction set with this hash.
fn proposal<'a>(value: &'a [u8], set: &'a [u8; 32]) -> Result<Proposal<'a>, XdrError> {
    if !VALUE_LENGTHS.contains(&value.len()) {
        return Err(XdrError::UnexpectedEnd);
    }
    let cursor = &mut Cursor::new(value);
    let close_time = cursor.u64()?;
    let has_milliseconds = value.len() == VALUE_LENGTHS[1];
    let close_time_ms = has_milliseconds.then(|| cursor.u64()).transpose()?;
    let (node, signature) = (cursor.array()?, cursor.array::<64>()?);
    Ok(Proposal { set, close_time, close_time_ms, node, signature })
}

/// Walks exactly one value.
fn walk<'a, T: Xdr>(
    bytes: &'a [u8],
    visitor: &mut impl Visit<'a>,
    what: &'static str,
) -> Result<(), Wrong> {
    let mut cursor = Cursor::new(bytes);
    T::walk(&mut cursor, Depth::LIMIT, visitor)
        .and_then(|()| cursor.finish())
        .map_err(|reason| Wrong::Unreadable { what, reason })
}

/// Results with the hashes of their transactions.
#[derive(Default)]
struct Pairs<'a>(Vec<(TxHash, &'a [u8])>);

impl<'a> Visit<'a> for Pairs<'a> {
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        if let Part::Outcome = part {
            let (hash, result) = xdr.split_first_chunk().ok_or(XdrError::UnexpectedEnd)?;
            self.0.push((Hash32(*hash), result));
        }
        Ok(())
    }
}
