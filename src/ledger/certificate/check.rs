//! Checks a certificate.

use super::error::{CertificateError, unreadable};
use super::format::{EventsOf, Kind, Statement, read_block, read_head};
use super::tail::Tail;
use super::{Certificate, CertifiedEvent, Claim};
use crate::decode::HeaderView;
use crate::decode::xdr::{
    Cursor, Depth, Header, InvokeHostFunctionSuccessPreImage, Part, TransactionResultSet, Visit,
    Xdr, XdrError,
};
use crate::domain::{Hash32, LedgerHash, LedgerRange, LedgerSeq, NetworkId, TxHash};
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
        return Err(CertificateError(format!(
            "the certificate is of the network with the id {}, and {network} is wanted: name its \
             network, and whose validators you trust there",
            claim.network
        )));
    }
    let mut checker = Checker {
        cursor,
        claim,
        previous: None,
        events: Vec::new(),
        invocations: 0,
        tail: Tail::new(validators),
    };
    let at = |ledger: LedgerSeq| move |wrong: String| proves_nothing(ledger, &wrong);
    for ledger in (claim.range.first.0..=claim.range.last.0).map(LedgerSeq) {
        checker.check_ledger(ledger).map_err(at(ledger))?;
    }
    let mut last = claim.range.last;
    let mut ended = false;
    while !ended {
        last = last.next().ok_or_else(|| at(last)("no ledger follows it".to_owned()))?;
        ended = checker.ledger_of_tail(last).map_err(at(last))?;
    }
    checker.end(last)
}

fn proves_nothing(ledger: LedgerSeq, wrong: &str) -> CertificateError {
    CertificateError(format!("ledger {ledger} of the certificate proves nothing: {wrong}"))
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
    fn check_ledger(&mut self, ledger: LedgerSeq) -> Result<(), String> {
        let value = self.header(ledger)?;
        let results = read_block(&mut self.cursor, "results")?;
        if sha256(&[results]) != *value.results {
            return Err(
                "its results are not those that its header names (txSetResultHash)".to_owned()
            );
        }
        let mut pairs = Pairs::default();
        walk::<TransactionResultSet>(results, &mut pairs, "results")?;
        for (order, (transaction, result)) in (1..).zip(pairs.0) {
            let outcome = Outcome::of_successful(result).map_err(unreadable("results"))?;
            let Some((Outcome { operations, .. }, named)) =
                outcome.and_then(|outcome| Some((outcome, outcome.invocation?.1)))
            else {
                continue;
            };
            if operations != 1 {
                return Err(format!(
                    "transaction {transaction} invokes a contract beside other operations"
                ));
            }
            self.check_invocation(ledger, transaction, order, named)?;
        }
        Ok(())
    }

    /// Checks an invocation, and takes the events of the contract.
    fn check_invocation(
        &mut self,
        ledger: LedgerSeq,
        transaction: TxHash,
        order: u32,
        named: &[u8; 32],
    ) -> Result<(), String> {
        let pre_image = read_block(&mut self.cursor, "invocation")?;
        if sha256(&[pre_image]) != *named {
            return Err(format!(
                "events and return value of transaction {transaction} are not those that its result \
                 names"
            ));
        }
        let mut events = EventsOf::new(&self.claim.contract, ledger, transaction, order);
        walk::<InvokeHostFunctionSuccessPreImage>(pre_image, &mut events, "invocation")?;
        self.events.append(&mut events.found);
        self.invocations += 1;
        Ok(())
    }

    /// Checks a ledger after the range. Returns whether it is the last one.
    fn ledger_of_tail(&mut self, ledger: LedgerSeq) -> Result<bool, String> {
        let kind = self.cursor.u32();
        match kind.map_err(unreadable("kind"))? {
            kind @ (Kind::HEADER | Kind::SIGNED) => {
                self.header_of_tail(ledger, kind == Kind::SIGNED)?;
                Ok(false)
            }
            Kind::LAST => self.end_of_tail(ledger).map(|()| true),
            kind => Err(format!("it is of kind {kind}, and there are kinds 0 to 2")),
        }
    }

    /// Checks a ledger behind which the certificate goes on, and that its transaction set is there if its
    /// signature counts.
    fn header_of_tail(&mut self, ledger: LedgerSeq, has_set: bool) -> Result<(), String> {
        let previous = self.previous;
        let value = self.header(ledger)?;
        let signer = value.signer(&self.claim.network);
        let counts = self.tail.add(ledger, signer.map_err(|rule| rule.to_string())?);
        match (counts, has_set) {
            (true, true) => {
                if sha256(&[self.set(previous)?]) != *value.set {
                    let sentence =
                        "its transaction set is not the one that its header names (txSetHash)";
                    return Err(sentence.to_owned());
                }
            }
            (false, false) => {}
            (false, true) => {
                let sentence = "its signature adds no trusted organisation, and its transaction set is \
                                there: the certificate was made for other validators";
                return Err(sentence.to_owned());
            }
            (true, false) => {
                let signed = self.tail.counted.last();
                let who = signed.map_or("", |signed| &signed.organisation);
                return Err(format!(
                    "its transaction set is missing, and the signature of {who} needs it"
                ));
            }
        }
        if self.tail.is_complete() {
            let sentence =
                "with it enough organisations have signed, and the certificate does not end there";
            return Err(sentence.to_owned());
        }
        Ok(())
    }

    /// Checks the last ledger, with which enough organisations have signed.
    fn end_of_tail(&mut self, ledger: LedgerSeq) -> Result<(), String> {
        let value = read_block(&mut self.cursor, "signed value")?;
        let set = sha256(&[self.set(self.previous)?]);
        let proposal = proposal(value, &set).map_err(unreadable("signed value"))?;
        let signer = proposal.signer(&self.claim.network);
        let counts = self.tail.add(ledger, Some(signer.map_err(|rule| rule.to_string())?));
        let (signed, needed) = self.tail.progress();
        if counts && signed == needed {
            return Ok(());
        }
        Err(format!(
            "the certificate ends there, and validators of {signed} trusted organisations have signed \
             the ledgers after its range, where {needed} are needed"
        ))
    }

    /// Reads a header, and checks that it is that of this ledger and follows the one before.
    fn header(&mut self, ledger: LedgerSeq) -> Result<Value<'a>, String> {
        let xdr = read_block(&mut self.cursor, "header")?;
        let mut header = HeaderView::default();
        walk::<Header>(xdr, &mut header, "header")?;
        if header.sequence != ledger {
            return Err(format!("its header is that of ledger {}", header.sequence));
        }
        let names = header.previous_hash;
        match self.previous.replace(Hash32(sha256(&[xdr]))) {
            Some(previous) if previous != names => {
                return Err(format!(
                    "it follows a ledger with hash {names}, and the one before has hash {previous}"
                ));
            }
            _ => {}
        }
        Value::of_header(xdr).map_err(unreadable("header"))
    }

    /// Reads the pre-image of a `txSetHash`, and checks that it follows the ledger before, whose hash
    /// it begins with (`TransactionSet`) or has after its version (`GeneralizedTransactionSet`).
    fn set(&mut self, previous: Option<LedgerHash>) -> Result<&'a [u8], String> {
        let set = read_block(&mut self.cursor, "transaction set")?;
        let previous = previous.unwrap_or_default();
        let follows = [0, 4].map(|at| set.get(at..at + 32) == Some(previous.as_bytes()));
        follows.contains(&true).then_some(set).ok_or_else(|| {
            format!(
                "its transaction set does not follow the ledger before, which has hash {previous}"
            )
        })
    }

    /// Checks what follows the last ledger.
    fn end(mut self, last: LedgerSeq) -> Result<Certificate<'a>, CertificateError> {
        let mut statement = Statement::new(&self.claim);
        self.events.iter().for_each(|event| statement.add(event));
        let digest = statement.finish();
        let named = self.cursor.array();
        let named = named.map_err(|reason| proves_nothing(last, &unreadable("digest")(reason)))?;
        if named != digest.as_bytes() {
            let LedgerRange { first, last } = self.claim.range;
            return Err(CertificateError(format!(
                "the events of ledgers {first} to {last} are not those that the certificate names \
                 at its end: it was changed"
            )));
        }
        if let count @ 1.. = self.cursor.rest().len() {
            return Err(CertificateError(format!(
                "{count} bytes follow ledger {last}, with which the certificate ends: it was changed"
            )));
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
    what: &str,
) -> Result<(), String> {
    let mut cursor = Cursor::new(bytes);
    T::walk(&mut cursor, Depth::LIMIT, visitor)
        .and_then(|()| cursor.finish())
        .map_err(unreadable(what))
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
