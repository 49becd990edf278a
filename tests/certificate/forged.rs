//! A forger who makes every hash above a false event right again: only the validators' signatures
//! refuse what he makes.

use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    Hash, InvokeHostFunctionSuccessPreImage, LedgerHeader, Limits, ReadXdr, WriteXdr,
};

use super::Chain;
use super::mutations::Parts;

/// How far the forger goes.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Forged {
    /// The events.
    Events,
    /// And the hash in the result.
    Result,
    /// And the hash in the header.
    Header,
    /// And the links of the headers after it.
    Links,
    /// And the links of the transaction sets.
    Sets,
}

/// Splits blocks, up to the end or to what is none.
pub fn blocks(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((block, rest)) = rest.split_at_checked(length) else { break };
        blocks.push(block.to_vec());
        bytes = rest;
    }
    blocks
}

fn joined(blocks: &[Vec<u8>]) -> Vec<u8> {
    let block = |block: &Vec<u8>| [&(block.len() as u32).to_be_bytes(), block.as_slice()].concat();
    blocks.iter().flat_map(block).collect()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Leaves out the last event of the ledger's first invocation with events. Returns false if there is
/// none.
fn leave_out(ledger: &mut [Vec<u8>], until: Forged) -> bool {
    for at in 2..ledger.len() {
        let pre_image = &ledger[at];
        let named = sha256(pre_image);
        let mut image =
            InvokeHostFunctionSuccessPreImage::from_xdr(pre_image, Limits::none()).unwrap();
        let mut events = image.events.to_vec();
        if events.pop().is_none() {
            continue;
        }
        image.events = events.try_into().unwrap();
        ledger[at] = image.to_xdr(Limits::none()).unwrap();
        if until >= Forged::Result {
            let named_at = ledger[1].windows(32).position(|bytes| bytes == named).unwrap();
            let name = sha256(&ledger[at]);
            ledger[1][named_at..named_at + 32].copy_from_slice(&name);
        }
        if until >= Forged::Header {
            let results = sha256(&ledger[1]);
            change(&mut ledger[0], |header| header.tx_set_result_hash = Hash(results));
        }
        return true;
    }
    false
}

fn change(header: &mut Vec<u8>, change: impl FnOnce(&mut LedgerHeader)) {
    let mut decoded = LedgerHeader::from_xdr(header.as_slice(), Limits::none()).unwrap();
    change(&mut decoded);
    *header = decoded.to_xdr(Limits::none()).unwrap();
}

/// Returns a certificate without an event of the ledger at `at`.
fn forged(parts: &Parts, range: LedgerRange, at: usize, until: Forged) -> Option<Vec<u8>> {
    let in_range = range.len() as usize;
    let mut ledgers = Vec::new();
    let mut previous: Option<[u8; 32]> = None;
    for (number, ledger) in parts.ledgers.iter().enumerate() {
        let (kind, rest) = ledger.split_at(if number < in_range { 0 } else { 4 });
        let mut blocks = blocks(rest);
        let is_last = kind == [0, 0, 0, 2];
        let is_signed = is_last || kind == [0, 0, 0, 1];
        if number == at && !leave_out(&mut blocks, until) {
            return None;
        }
        if let Some(hash) = previous.filter(|_| number > at && until >= Forged::Links) {
            if is_signed && until >= Forged::Sets {
                blocks[1][4..36].copy_from_slice(&hash);
            }
            if !is_last {
                let set = blocks.get(1).filter(|_| is_signed && until >= Forged::Sets);
                let set = set.map(|set| sha256(set));
                change(&mut blocks[0], |header| {
                    header.previous_ledger_hash = Hash(hash);
                    set.into_iter().for_each(|set| header.scp_value.tx_set_hash = Hash(set));
                });
            }
        }
        previous = Some(sha256(&blocks[0]));
        ledgers.push([kind, &joined(&blocks)].concat());
    }
    Some(parts.with(&ledgers))
}

#[test]
fn only_signatures_refuse_a_forger_who_makes_hashes_right() {
    let sandbox = Chain::trusting_all(local(), ledgers(sandbox(5, 4..=12), 16), 1);
    let range = LedgerRange::new(sandbox.first().0 + 6, sandbox.last().0 - 2);
    let public = Chain::public().map(|chain| {
        let range = LedgerRange::new(chain.first(), chain.attested());
        (chain, range)
    });
    for (chain, range) in [(sandbox, range)].into_iter().chain(public) {
        let claim = chain.claim(chain.contracts()[0], range);
        let parts = Parts::of(&chain, &chain.validators, claim);
        let mut count = 0;
        for at in 0..range.len() as usize {
            for until in
                [Forged::Events, Forged::Result, Forged::Header, Forged::Links, Forged::Sets]
            {
                let Some(bytes) = forged(&parts, range, at, until) else { continue };
                let sentence = chain.check(&bytes).unwrap_err().to_string();
                let (ledger, wrong) = sentence
                    .strip_prefix("ledger ")
                    .and_then(|rest| rest.split_once(" of the certificate proves nothing: "))
                    .unwrap_or_else(|| panic!("{at} {until:?}: {sentence}"));
                let ledger = LedgerSeq(ledger.parse().unwrap());
                let at = range.first.0 + at as u32;
                let set_link = "its transaction set does not follow the ledger before";
                let (wrongs, is_there) = match until {
                    Forged::Events => (vec!["events and return value of"], ledger.0 == at),
                    Forged::Result => (vec!["its results are not those"], ledger.0 == at),
                    Forged::Header => (vec!["it follows a ledger with hash", set_link], true),
                    Forged::Links => (vec![set_link], ledger > range.last),
                    Forged::Sets => (vec!["the signature of validator"], ledger > range.last),
                };
                let is_named = wrongs.iter().any(|begin| wrong.starts_with(begin));
                assert!(is_named && is_there, "{at} {until:?}: {sentence}");
                count += 1;
            }
        }
        assert!(count >= 20, "{count}");
    }
}
