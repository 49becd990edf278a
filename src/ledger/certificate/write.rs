//! Writes a certificate.

use super::error::CertificateError;
use super::format::{self, Kind, Statement, write_block};
use super::tail::{Attestation, Tail};
use super::{Claim, format::EventsOf};
use crate::decode::LedgerView;
use crate::decode::xdr::{Cursor, Depth, InvokeHostFunctionSuccessPreImage, Xdr};
use crate::domain::{Hash32, LedgerSeq};
use crate::validators::Validators;
use crate::verify::events::{Budget, Form, invocation};
use crate::verify::value::{Proposal, Value};
use crate::verify::{Fault, Link, Policy, Rule, VerifyError, set_pre_image, verify, verify_link};

/// Writes a certificate from ledgers that are given one after the other, from the first one of the
/// range, until it [is complete](Self::is_complete). Each is checked as on its way into a store; its
/// source need not be trusted.
pub struct Writer<'v> {
    claim: Claim,
    out: Vec<u8>,
    /// The ledger that is needed next; `None` after the last sequence number.
    next: Option<LedgerSeq>,
    previous: Option<Link>,
    tail: Tail<'v>,
    statement: Statement,
    events: u64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Number of the contract's events.
    pub events: u64,
    /// The last ledger, with which enough organisations have signed.
    pub end: LedgerSeq,
    /// The signatures that attest the certificate, in the order of the ledgers.
    pub attested_by: Vec<Attestation>,
    /// SHA-256 over claim and events.
    pub digest: Hash32,
}

impl<'v> Writer<'v> {
    /// Begins a certificate.
    ///
    /// # Errors
    /// When the range is empty.
    pub fn new(claim: Claim, validators: &'v Validators) -> Result<Self, CertificateError> {
        if claim.range.is_empty() {
            return Err(CertificateError::no_range(claim.range));
        }
        let out = format::head(&claim);
        let (next, tail) = (Some(claim.range.first), Tail::new(validators));
        let statement = Statement::new(&claim);
        Ok(Self { claim, out, next, previous: None, tail, statement, events: 0 })
    }

    /// Returns the ledger that is needed next; `None` when the certificate is complete.
    pub fn next(&self) -> Option<LedgerSeq> {
        self.next.filter(|_| !self.is_complete())
    }

    /// Whether enough organisations have signed, and no further ledger is needed.
    pub fn is_complete(&self) -> bool {
        self.tail.is_complete()
    }

    /// Adds the next ledger.
    ///
    /// # Errors
    /// When it is not the next one, or not what its header binds, or when its rewritten events are
    /// unproven. The certificate cannot be continued then.
    pub fn add(&mut self, ledger: &LedgerView<'_>) -> Result<(), CertificateError> {
        let header = &ledger.header;
        if let Some(wanted) = self.next().filter(|next| *next != header.sequence) {
            return Err(CertificateError(format!(
                "ledger {} was given where ledger {wanted} is needed: give the ledgers in order",
                header.sequence
            )));
        }
        let policy = Policy::default();
        let verified = verify(ledger, &self.claim.network, policy)?;
        let link = Link::from(header);
        if let Some(previous) = &self.previous {
            verify_link(previous, &link)?;
        }
        if self.claim.range.contains(header.sequence) {
            self.add_to_range(ledger)?;
        } else {
            let counts = self.tail.add(header.sequence, verified.signer);
            self.add_to_tail(ledger, counts);
        }
        self.previous = Some(link);
        self.next = header.sequence.next();
        Ok(())
    }

    fn add_to_range(&mut self, ledger: &LedgerView<'_>) -> Result<(), CertificateError> {
        write_block(&mut self.out, &[ledger.header.xdr]);
        let count = u32::try_from(ledger.transactions.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut results: Vec<&[u8]> = vec![&count];
        for transaction in &ledger.transactions {
            results.extend([transaction.hash.as_bytes().as_slice(), transaction.result]);
        }
        write_block(&mut self.out, &results);
        let mut budget = Budget::default();
        for transaction in ledger.transactions.iter().filter(|one| one.successful) {
            let (sequence, hash) = (ledger.header.sequence, transaction.hash);
            let fault = |(rule, operation)| {
                let fault = Fault { ledger: sequence, transaction: Some(hash), operation, rule };
                VerifyError::Fault(Box::new(fault))
            };
            let found =
                invocation(ledger, transaction, &self.claim.network, &mut budget).map_err(fault)?;
            let Some(found) = found else { continue };
            let events: Vec<&[u8]> = match &found.form {
                Form::Bound => found.events.iter().map(|event| event.xdr).collect(),
                Form::Rewritten(earlier) => earlier.iter().map(Vec::as_slice).collect(),
                Form::Unproven => {
                    return Err(CertificateError(format!(
                        "ledger {sequence}, transaction {hash}: its events were rewritten to their \
                         form of protocol 23 (CAP-67), and their earlier form is not found, so \
                         nothing proves them: take the ledger from a source that does not rewrite \
                         events"
                    )));
                }
            };
            let count = u32::try_from(events.len()).unwrap_or(u32::MAX).to_be_bytes();
            let mut pre_image = [found.return_value, &count].concat();
            events.iter().for_each(|event| pre_image.extend_from_slice(event));
            write_block(&mut self.out, &[&pre_image]);
            let order = transaction.application_order;
            let mut of = EventsOf::new(&self.claim.contract, sequence, hash, order);
            let cursor = &mut Cursor::new(&pre_image);
            // The walk that made the view has accepted these values, or they were encoded here.
            InvokeHostFunctionSuccessPreImage::walk(cursor, Depth::LIMIT, &mut of)
                .map_err(|_| fault((Rule::Invocation, Some(found.operation))))?;
            of.found.iter().for_each(|event| self.statement.add(event));
            self.events += of.found.len() as u64;
        }
        Ok(())
    }

    fn add_to_tail(&mut self, ledger: &LedgerView<'_>, counts: bool) {
        let out = &mut self.out;
        let header = ledger.header.xdr;
        if !counts {
            out.extend_from_slice(&Kind::HEADER.to_be_bytes());
            return write_block(out, &[header]);
        }
        let proposal = Value::of_header(header).ok().and_then(|value| value.proposal());
        match proposal.filter(|_| self.tail.is_complete()) {
            Some(proposal) => {
                out.extend_from_slice(&Kind::LAST.to_be_bytes());
                write_value(out, &proposal);
            }
            None => {
                out.extend_from_slice(&Kind::SIGNED.to_be_bytes());
                write_block(out, &[header]);
            }
        }
        write_block(out, &set_pre_image(ledger));
    }

    /// Returns what has been written since this was called the last time: a long certificate can be
    /// stored in pieces.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the certificate. Returns what it proves, and what has been written since [`Self::take`]
    /// was called the last time.
    ///
    /// # Errors
    /// When ledgers are missing, or too few validators have signed.
    pub fn finish(mut self) -> Result<(Written, Vec<u8>), CertificateError> {
        let range = self.claim.range;
        let last = range.last;
        let newest = match self.previous {
            Some(newest) if newest.sequence >= last => newest.sequence,
            _ => {
                let next = self.next.unwrap_or(last);
                return Err(CertificateError(format!(
                    "ledger {next} is missing: ledgers {next} to {last} are needed, and those after \
                     them"
                )));
            }
        };
        if !self.is_complete() {
            let (signed, needed) = self.tail.progress();
            return Err(CertificateError(format!(
                "ledger {last} is not attested: up to ledger {newest}, validators of {signed} trusted \
                 organisations have signed ledgers after it, and {needed} are needed: give later \
                 ledgers, or prove an earlier range"
            )));
        }
        let digest = self.statement.finish();
        self.out.extend_from_slice(digest.as_bytes());
        let (events, attested_by) = (self.events, self.tail.counted);
        Ok((Written { events, end: newest, attested_by, digest }, self.out))
    }
}

/// Writes the signed value of the last ledger.
fn write_value(out: &mut Vec<u8>, proposal: &Proposal<'_>) {
    let time = proposal.close_time.to_be_bytes();
    let milliseconds = proposal.close_time_ms.map(u64::to_be_bytes);
    let milliseconds = milliseconds.as_ref().map_or([].as_slice(), |bytes| bytes);
    write_block(out, &[&time, milliseconds, proposal.node, proposal.signature]);
}
