//! Certificates: written from real ledgers of the public network and from made ones, and accepted
//! with exactly the events that the ledgers hold; changed ones are refused; the checker in
//! `examples`, which shares nothing with this one, agrees.

mod example;
mod forged;
mod made;
mod mutations;
mod real;
mod rewritten;

use std::collections::{BTreeMap, BTreeSet};

use orrery_ledger::certificate::{Certificate, CertificateError, Claim, Writer, Written, check};
use orrery_ledger::decode::{LedgerView, Placement, decode};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Network, NodeId};
use orrery_ledger::validators::{Organisation, Validators};
use orrery_ledger::verify::{Policy, verify};
use orrery_testkit::{data, fixtures};

/// Consecutive ledgers of one network, and the validators that are trusted.
#[derive(Clone)]
struct Chain {
    network: Network,
    validators: Validators,
    /// `LedgerCloseMeta` of each ledger, by its sequence number.
    ledgers: BTreeMap<LedgerSeq, Vec<u8>>,
}

impl Chain {
    fn new(network: Network, validators: Validators, ledgers: Vec<Vec<u8>>) -> Self {
        let numbered = |raw: Vec<u8>| (decode(&raw, network.id()).unwrap().header.sequence, raw);
        let ledgers = ledgers.into_iter().map(numbered).collect();
        Self { network, validators, ledgers }
    }

    /// A chain whose signers are all trusted, each an organisation of its own.
    fn trusting_all(network: Network, ledgers: Vec<Vec<u8>>, threshold: usize) -> Self {
        let signers: BTreeSet<NodeId> =
            ledgers.iter().filter_map(|raw| signer(raw, &network)).collect();
        let organisation =
            |key: NodeId| Organisation { name: key.to_string(), validators: vec![key] };
        let organisations = signers.into_iter().map(organisation).collect();
        Self::new(network, Validators::new(organisations, threshold).unwrap(), ledgers)
    }

    /// The consecutive recorded ledgers of the public network; `None` when they are absent.
    fn public() -> Option<Self> {
        let folder = data::ledgers()?;
        let names = fixtures::files(&folder);
        let names = names.iter().filter(|name| name.starts_with("lake-pubnet/"));
        let ledgers = names.flat_map(|name| fixtures::load(&folder, name).ledgers).collect();
        let network = Network::from_name_or_passphrase("mainnet");
        let validators = Validators::of_network(&network).unwrap();
        Some(Self::new(network, validators, ledgers))
    }

    fn first(&self) -> LedgerSeq {
        *self.ledgers.keys().next().unwrap()
    }

    fn last(&self) -> LedgerSeq {
        *self.ledgers.keys().next_back().unwrap()
    }

    fn view(&self, ledger: LedgerSeq) -> LedgerView<'_> {
        decode(&self.ledgers[&ledger], self.network.id()).unwrap()
    }

    fn claim(&self, contract: ContractId, range: LedgerRange) -> Claim {
        Claim { network: *self.network.id(), contract, range }
    }

    /// Writes the certificate of a contract's events in a range.
    fn prove(&self, claim: Claim) -> Result<(Vec<u8>, Written), CertificateError> {
        let mut writer = Writer::new(claim, &self.validators)?;
        while let Some(raw) = writer.next().and_then(|next| self.ledgers.get(&next)) {
            writer.add(&decode(raw, self.network.id()).unwrap())?;
        }
        writer.finish().map(|(written, bytes)| (bytes, written))
    }

    fn check<'a>(&self, certificate: &'a [u8]) -> Result<Certificate<'a>, CertificateError> {
        check(certificate, self.network.id(), &self.validators)
    }

    /// The last ledger for which later ones of the chain attest a range that ends with it.
    fn attested(&self) -> LedgerSeq {
        let provable = |last: &LedgerSeq| {
            let claim = self.claim(ContractId([0; 32]), LedgerRange::only(*last));
            self.prove(claim).is_ok()
        };
        (self.first().0..=self.last().0).rev().map(LedgerSeq).find(provable).unwrap()
    }

    /// All contracts that emitted events in invocations, the busiest first.
    fn contracts(&self) -> Vec<ContractId> {
        let mut counts: BTreeMap<ContractId, usize> = BTreeMap::new();
        for ledger in self.ledgers.keys() {
            for (contract, _) in events(&self.view(*ledger)) {
                *counts.entry(contract).or_default() += 1;
            }
        }
        let mut contracts: Vec<_> = counts.into_iter().collect();
        contracts.sort_by_key(|(contract, count)| (usize::MAX - count, *contract));
        contracts.into_iter().map(|(contract, _)| contract).collect()
    }

    /// Writes a certificate, and asserts that it is accepted with exactly the events of the ledgers,
    /// found without the writer or the checker.
    fn proven(&self, claim: Claim) -> (Vec<u8>, Written) {
        let (bytes, written) = self.prove(claim).unwrap();
        let certificate = self.check(&bytes).unwrap_or_else(|error| panic!("{claim:?}: {error}"));
        assert_eq!(Claim::read(&bytes).unwrap(), claim);
        assert_eq!(certificate.claim, claim);
        let mut expected = Vec::new();
        for ledger in (claim.range.first.0..=claim.range.last.0).map(LedgerSeq) {
            let view = self.view(ledger);
            let of = events(&view).into_iter().filter(|(id, _)| *id == claim.contract);
            expected.extend(of.map(|(_, event)| event));
        }
        let found: Vec<_> = certificate
            .events
            .iter()
            .map(|event| (event.rpc_id.to_string(), event.transaction, event.xdr.to_vec()))
            .collect();
        assert_eq!(found, expected, "{claim:?}");
        assert_eq!(written.events, found.len() as u64);
        assert_eq!(written.digest, certificate.digest);
        assert_eq!(written.attested_by, certificate.attested_by);
        assert_eq!(written.attested_by.len(), self.validators.threshold());
        assert_eq!(written.attested_by.last().unwrap().ledger, written.end);
        assert!(written.attested_by[0].ledger > claim.range.last);
        (bytes, written)
    }
}

type Event = (String, orrery_ledger::domain::TxHash, Vec<u8>);

/// The events of a ledger's invocations: those of operations of smart-contract transactions.
fn events(view: &LedgerView<'_>) -> Vec<(ContractId, Event)> {
    let of_invocation = view.events.iter().filter(|event| {
        let transaction = &view.transactions[event.transaction];
        let is_of_operation = matches!(event.placement, Placement::Operation { .. });
        is_of_operation && transaction.smart_contract && transaction.successful
    });
    of_invocation
        .filter_map(|event| {
            let hash = view.transactions[event.transaction].hash;
            let contract = ContractId(*event.contract?);
            Some((contract, (event.rpc_id.to_string(), hash, event.xdr.to_vec())))
        })
        .collect()
}

/// The validator whose signature in a ledger attests the one before.
fn signer(raw: &[u8], network: &Network) -> Option<NodeId> {
    let view = decode(raw, network.id()).unwrap();
    verify(&view, network.id(), Policy::default()).unwrap().signer
}
