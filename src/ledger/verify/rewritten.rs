//! Events that were rewritten after the fact. A core with `BACKFILL_STELLAR_ASSET_EVENTS` gives
//! events of an asset's own contract in ledgers of protocols 20 to 22 the form that they have since
//! protocol 23 (CAP-67): the administrator's topic of `mint`, `clawback` and `set_authorized` is
//! left out, and a `transfer` from or to the issuer becomes `mint` or `burn`. Results name the form
//! before that, so it is put back, and the hash decides.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use stellar_xdr::{
    AccountId, Asset, Limits, ReadXdr, ScAddress, ScString, ScSymbol, ScVal, WriteXdr,
};

use super::outcome::hash_invocation;
use super::value::Value;
use crate::decode::{
    EventView, LedgerView, MetaEvents, TransactionView, named_contracts, transaction_changes,
};
use crate::domain::{ContractId, NetworkId, asset_contract_id, parse_asset};

/// Protocols whose ledgers can hold rewritten events.
const PROTOCOLS: RangeInclusive<u32> = 20..=22;
/// The version of `TransactionMeta` in which rewritten events are.
const META_VERSION: u32 = 4;
/// Bounds on what is tried: combinations of forms and bytes hashed for one invocation, addresses that
/// may be the administrator, bytes hashed for all invocations of a ledger. What transactions of those
/// protocols can hold needs far less.
const MOST_COMBINATIONS: usize = 4096;
const MOST_BYTES: usize = 16 << 20;
const MOST_BYTES_OF_LEDGER: usize = 64 << 20;
const MOST_ADDRESSES: usize = 64;
/// Size and depth of values in which addresses are looked for.
const LIMITS: Limits = Limits { depth: 200, len: 256 << 10 };
/// Parts of an XDR `ContractEvent` before its topics: extension, contract, type, version of the body.
const BEFORE_TOPICS: usize = 4 + (4 + 32) + 4 + 4;

/// The result of looking for the earlier form of an invocation's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Earlier {
    /// The events, in the form that the result names; each an XDR `ContractEvent`.
    Found(Vec<Vec<u8>>),
    /// There are events that may have been rewritten, and no earlier form fits.
    NotFound,
    /// No event can have been rewritten.
    NotRewritten,
}

/// What may still be tried for the invocations of one ledger.
#[derive(Debug)]
pub struct Budget {
    /// Bytes that may be hashed.
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: MOST_BYTES_OF_LEDGER }
    }
}

/// Looks for the earlier form of an invocation's events: the one whose hash `named` is. Events can
/// only have been rewritten if each is of a contract that the transaction's envelope names.
pub fn earlier(
    ledger: &LedgerView<'_>,
    transaction: &TransactionView<'_>,
    events: &[&EventView<'_>],
    network: &NetworkId,
    (return_value, named): (&[u8], &[u8; 32]),
    budget: &mut Budget,
) -> Earlier {
    let may_be = transaction.meta_version() == META_VERSION
        && Value::of_header(ledger.header.xdr)
            .is_ok_and(|value| value.applied_under(|protocol| PROTOCOLS.contains(&protocol)));
    if !may_be || !are_of_named_contracts(transaction, events, network) {
        return Earlier::NotRewritten;
    }
    let assets: Vec<_> = events.iter().map(|event| asset_of(ledger, event, network)).collect();
    if assets.iter().all(Option::is_none) {
        return Earlier::NotRewritten;
    }
    let bytes = events.iter().map(|event| event.xdr.len() + 64).sum::<usize>().max(1);
    let most = MOST_COMBINATIONS.min(MOST_BYTES.min(budget.bytes) / bytes);
    let mut administrators = addresses(transaction, &assets);
    // So that the forms together take no more memory than what may be hashed.
    administrators.truncate(most);
    let mut is_exhaustive = true;
    let forms: Vec<Vec<Vec<u8>>> = events
        .iter()
        .zip(&assets)
        .map(|(event, asset)| {
            let (forms, all) = match asset {
                Some(asset) if most > 0 => earlier_forms(ledger, event, asset, &administrators),
                _ => (vec![event.xdr.to_vec()], asset.is_none()),
            };
            is_exhaustive &= all;
            forms
        })
        .collect();
    let mut tried = 0;
    for chosen in combinations(&forms).take(most) {
        tried += 1;
        budget.bytes = budget.bytes.saturating_sub(bytes);
        if hash_invocation(return_value, chosen.iter().map(|form| form.as_slice())) == *named {
            return Earlier::Found(chosen.into_iter().cloned().collect());
        }
    }
    // Those that come first come again, so fewer were tried only if there are no more.
    if is_exhaustive && tried < most { Earlier::NotRewritten } else { Earlier::NotFound }
}

/// Whether each event is of a contract that the envelope of its transaction names.
fn are_of_named_contracts(
    transaction: &TransactionView<'_>,
    events: &[&EventView<'_>],
    network: &NetworkId,
) -> bool {
    let Ok(named) = named_contracts(transaction.envelope, network) else { return false };
    // Both lists can be long in a ledger that a source has made up.
    let named: HashSet<ContractId> = named.into_iter().collect();
    let is_named = |event: &&EventView<'_>| {
        event.contract.is_some_and(|contract| named.contains(&ContractId(*contract)))
    };
    events.iter().all(is_named)
}

/// Returns the asset whose own contract emitted the event, which names it in its last topic.
fn asset_of(ledger: &LedgerView<'_>, event: &EventView<'_>, network: &NetworkId) -> Option<Asset> {
    let last = ledger.topics(event).last()?;
    let ScVal::String(ScString(text)) = ScVal::from_xdr(last, LIMITS).ok()? else { return None };
    let asset = parse_asset(&text.to_utf8_string().ok()?)?;
    let contract = ContractId(*event.contract?);
    (asset_contract_id(network, &asset) == contract).then_some(asset)
}

/// Returns the forms that a rewritten event may have had, each an XDR `ContractEvent`, and whether they
/// are all that are possible: the administrator may be an address that is not found. The present form
/// is among them where it may be the original one.
fn earlier_forms(
    ledger: &LedgerView<'_>,
    event: &EventView<'_>,
    asset: &Asset,
    administrators: &[Vec<u8>],
) -> (Vec<Vec<u8>>, bool) {
    let topics = ledger.topics(event);
    let with = |topics: &[&[u8]]| with_topics(event, topics);
    let (Some(name), [_, address, asset_topic]) = (topics.first().and_then(|t| symbol(t)), topics)
    else {
        return (vec![event.xdr.to_vec()], true);
    };
    let issuer = issuer(asset);
    let transfer = xdr(&ScVal::Symbol(ScSymbol("transfer".try_into().unwrap_or_default())));
    let administered = |name: &[u8]| -> Vec<Vec<u8>> {
        administrators.iter().map(|one| with(&[name, one, address, asset_topic])).collect()
    };
    match (name.as_str(), &issuer) {
        ("mint", Some(issuer)) => {
            let mut forms = vec![with(&[&transfer, issuer, address, asset_topic])];
            forms.extend(administered(topics[0]));
            (forms, false)
        }
        ("burn", Some(issuer)) => {
            (vec![with(&[&transfer, address, issuer, asset_topic]), event.xdr.to_vec()], true)
        }
        ("mint" | "clawback" | "set_authorized", _) => (administered(topics[0]), false),
        _ => (vec![event.xdr.to_vec()], true),
    }
}

/// Returns the event with other topics.
fn with_topics(event: &EventView<'_>, topics: &[&[u8]]) -> Vec<u8> {
    let mut out = event.xdr.get(..BEFORE_TOPICS).unwrap_or_default().to_vec();
    out.extend_from_slice(&(topics.len() as u32).to_be_bytes());
    topics.iter().for_each(|topic| out.extend_from_slice(topic));
    out.extend_from_slice(event.data);
    out
}

/// Returns the addresses that may be the administrator of one of the assets, each an XDR `ScVal`:
/// the issuers, and all addresses in diagnostic events and changed entries of the transaction.
fn addresses(transaction: &TransactionView<'_>, assets: &[Option<Asset>]) -> Vec<Vec<u8>> {
    let mut found = Found::default();
    assets.iter().flatten().filter_map(issuer).for_each(|issuer| found.add(issuer));
    if let Ok(events) = MetaEvents::of(transaction.meta) {
        for diagnostic in events.diagnostic {
            if let Ok(diagnostic) = stellar_xdr::DiagnosticEvent::from_xdr(diagnostic, LIMITS) {
                let stellar_xdr::ContractEventBody::V0(body) = &diagnostic.event.body;
                body.topics.iter().chain([&body.data]).for_each(|value| found.search(value));
            }
        }
    }
    if let Ok(changes) = transaction_changes(transaction.meta) {
        for entry in changes.operations.iter().filter_map(|change| change.entry) {
            let Ok(entry) = stellar_xdr::LedgerEntry::from_xdr(entry, LIMITS) else { continue };
            if let stellar_xdr::LedgerEntryData::ContractData(data) = &entry.data {
                found.add(xdr(&ScVal::Address(data.contract.clone())));
                found.search(&data.key);
                found.search(&data.val);
            }
        }
    }
    found.addresses
}

/// Distinct addresses, in the order in which they were found.
#[derive(Default)]
struct Found {
    addresses: Vec<Vec<u8>>,
}

impl Found {
    fn add(&mut self, address: Vec<u8>) {
        if self.addresses.len() < MOST_ADDRESSES && !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    /// Adds all addresses in a value. Values were read with a bounded depth.
    fn search(&mut self, value: &ScVal) {
        match value {
            ScVal::Address(_) => self.add(xdr(value)),
            ScVal::Vec(Some(list)) => list.iter().for_each(|value| self.search(value)),
            ScVal::Map(Some(map)) => map.iter().for_each(|entry| {
                self.search(&entry.key);
                self.search(&entry.val);
            }),
            ScVal::ContractInstance(instance) => {
                instance.storage.iter().flat_map(|map| map.iter()).for_each(|entry| {
                    self.search(&entry.key);
                    self.search(&entry.val);
                });
            }
            _ => {}
        }
    }
}

/// Returns all choices of one form for each event. Those come first in which all events take the
/// form at the same position of their lists, because an asset has one administrator.
fn combinations(forms: &[Vec<Vec<u8>>]) -> impl Iterator<Item = Vec<&Vec<u8>>> {
    let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
    let possible = forms.iter().all(|list| !list.is_empty());
    let uniform = (0..longest)
        .map(move |at| forms.iter().map(|list| &list[at.min(list.len() - 1)]).collect());
    let mut digits = Some(vec![0; forms.len()]);
    let all = std::iter::from_fn(move || {
        let current = digits.take()?;
        let chosen = forms.iter().zip(&current).map(|(list, digit)| &list[*digit]).collect();
        digits = following(&current, forms);
        Some(chosen)
    });
    uniform.chain(all).take_while(move |_| possible)
}

/// Returns the numbers that follow, the first counting fastest; `None` after the last.
fn following(digits: &[usize], forms: &[Vec<Vec<u8>>]) -> Option<Vec<usize>> {
    let mut next = digits.to_vec();
    for (digit, list) in next.iter_mut().zip(forms) {
        if *digit + 1 < list.len() {
            *digit += 1;
            return Some(next);
        }
        *digit = 0;
    }
    None
}

/// Returns the address of an asset's issuer as an XDR `ScVal`; `None` for the network's own asset.
fn issuer(asset: &Asset) -> Option<Vec<u8>> {
    let issuer: &AccountId = match asset {
        Asset::Native => return None,
        Asset::CreditAlphanum4(asset) => &asset.issuer,
        Asset::CreditAlphanum12(asset) => &asset.issuer,
    };
    Some(xdr(&ScVal::Address(ScAddress::Account(issuer.clone()))))
}

/// Returns the text of an XDR `ScVal` if it is a symbol.
fn symbol(value: &[u8]) -> Option<String> {
    match ScVal::from_xdr(value, LIMITS).ok()? {
        ScVal::Symbol(ScSymbol(text)) => text.to_utf8_string().ok(),
        _ => None,
    }
}

/// Returns the XDR of a value; of values that were decoded within limits, so it cannot fail.
fn xdr(value: &ScVal) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use orrery_testkit::fixtures;
    use orrery_testkit::forged::Ledger;
    use stellar_xdr::{ContractEvent, ContractEventBody, ScBytes};

    use super::*;
    use crate::decode::decode;
    use crate::domain::Network;

    /// Looks for the earlier form of events that take the place of the one that was rewritten in a
    /// public ledger. Returns what it finds, and how many bytes it has hashed.
    fn search(
        events: impl FnOnce(ContractEvent) -> Vec<ContractEvent>,
    ) -> Option<(Earlier, usize)> {
        let folder = fixtures::folder()?;
        let raw = fixtures::load(&folder, "pubnet/ledger-57500008.xdr.gz").ledgers.remove(0);
        let network = Network::from_name_or_passphrase("mainnet");
        let at = rewritten_in(&raw, &network);
        let mut ledger = Ledger::read(&raw).unwrap();
        let first = ledger.events(at).remove(0);
        ledger.set_events(at, events(first));
        let raw = ledger.encode();
        let view = decode(&raw, network.id()).unwrap();
        let mut budget = Budget::default();
        let found = earlier_of(&view, at, &network, &mut budget);
        Some((found, MOST_BYTES_OF_LEDGER - budget.bytes))
    }

    fn earlier_of(
        view: &LedgerView<'_>,
        at: usize,
        network: &Network,
        budget: &mut Budget,
    ) -> Earlier {
        let transaction = &view.transactions[at];
        let events: Vec<_> = view.events[transaction.operation_events.clone()].iter().collect();
        let outcome = super::super::outcome::Outcome::of_result(transaction.result, true).unwrap();
        let (_, named) = outcome.invocation.unwrap();
        let value = transaction.return_value.unwrap();
        earlier(view, transaction, &events, network.id(), (value, named), budget)
    }

    /// The position of the transaction whose events were rewritten.
    fn rewritten_in(raw: &[u8], network: &Network) -> usize {
        let view = decode(raw, network.id()).unwrap();
        let is_rewritten = |at: &usize| {
            let transaction = &view.transactions[*at];
            transaction.successful
                && transaction.smart_contract
                && !transaction.operation_events.is_empty()
                && matches!(
                    earlier_of(&view, *at, network, &mut Budget::default()),
                    Earlier::Found(forms) if !forms.is_empty()
                        && forms.iter().zip(&view.events[transaction.operation_events.clone()])
                            .any(|(form, event)| form != event.xdr)
                )
        };
        (0..view.transactions.len()).find(is_rewritten).unwrap()
    }

    fn body(event: &mut ContractEvent) -> &mut stellar_xdr::ContractEventV0 {
        let ContractEventBody::V0(body) = &mut event.body;
        body
    }

    /// A `burn` of the same asset.
    fn burn(mut event: ContractEvent, number: u64) -> ContractEvent {
        let body = body(&mut event);
        let topics = body.topics.to_vec();
        let symbol = ScVal::Symbol(ScSymbol("burn".try_into().unwrap()));
        let asset = topics[topics.len() - 1].clone();
        body.topics = vec![symbol, topics[1].clone(), asset].try_into().unwrap();
        body.data = ScVal::U64(number);
        event
    }

    #[test]
    fn large_events_are_not_hashed() {
        let large = |mut event: ContractEvent| {
            body(&mut event).data = ScVal::Bytes(ScBytes(vec![7; 20 << 20].try_into().unwrap()));
            vec![event]
        };
        let Some(found) = search(large) else { return };
        assert_eq!(found, (Earlier::NotFound, 0));
    }

    #[test]
    fn many_combinations_are_not_tried() {
        let many = |event: ContractEvent| (0..40).map(|n| burn(event.clone(), n)).collect();
        let Some((found, hashed)) = search(many) else { return };
        assert_eq!(found, Earlier::NotFound);
        assert!(hashed > 0 && hashed <= MOST_BYTES, "{hashed}");
    }

    /// A `burn` has two earlier forms. When neither is the one that the result names, it is forged.
    #[test]
    fn events_are_forged_when_all_their_earlier_forms_were_tried() {
        let Some((found, hashed)) = search(|event| vec![burn(event, 1)]) else { return };
        assert_eq!(found, Earlier::NotRewritten);
        assert!(hashed > 0);
    }
}
