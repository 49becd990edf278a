//! A ledger of protocol 22 whose events were rewritten to their form of protocol 23 (CAP-67): a
//! certificate has the form that consensus has bound.

use ed25519_dalek::{Signer, SigningKey};
use orrery_ledger::certificate::{CertificateError, Claim, Writer, check};
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Network, NodeId};
use orrery_ledger::validators::{Organisation, Validators};
use orrery_testkit::{data, fixtures};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractEvent, InvokeHostFunctionSuccessPreImage, Limits, ReadXdr, TransactionResultPair,
    TransactionResultSet, WriteXdr,
};

use super::forged::blocks;
use super::mutations::HEAD;

const LEDGER: LedgerSeq = LedgerSeq(57_500_008);

/// The ledger, if the recorded ledgers are there.
fn recorded() -> Option<Vec<u8>> {
    let name = format!("pubnet/ledger-{LEDGER}.xdr.gz");
    Some(fixtures::load(&data::ledgers()?, &name).ledgers.remove(0))
}

/// Writes a certificate of the ledger, which ends with a ledger that a validator of this test signs:
/// no recorded ledger follows it.
fn proven(raw: &[u8], claim: Claim) -> Result<(Vec<u8>, Validators), CertificateError> {
    let key = SigningKey::from_bytes(&[7; 32]);
    let node = NodeId(key.verifying_key().to_bytes());
    let organisation = Organisation { name: "test".to_owned(), validators: vec![node] };
    let validators = Validators::new(vec![organisation], 1).unwrap();
    let view = decode(raw, &claim.network).unwrap();
    let mut writer = Writer::new(claim, &validators).unwrap();
    writer.add(&view)?;
    let mut bytes = writer.take();
    let set = [&[0, 0, 0, 1], view.header.hash.as_bytes().as_slice()].concat();
    let time = 1_750_000_000u64.to_be_bytes();
    let mut message = claim.network.as_bytes().to_vec();
    message.extend([0, 0, 0, 4]);
    message.extend(Sha256::digest(&set));
    message.extend(time);
    let signature = key.sign(&message).to_bytes();
    let value = [time.as_slice(), node.as_bytes(), &signature].concat();
    bytes.extend([0, 0, 0, 2]);
    for block in [&value, &set] {
        bytes.extend((block.len() as u32).to_be_bytes());
        bytes.extend(block);
    }
    Ok((bytes, validators))
}

/// The digest of a certificate without one, whose range is one ledger.
fn digest(bytes: &[u8], contract: &ContractId) -> Vec<u8> {
    let mut statement = Sha256::new_with_prefix(&bytes[..HEAD]);
    // Header, results, invocations; then the kind of the last ledger, which is no length of a block.
    let blocks = blocks(&bytes[HEAD..]);
    let results = TransactionResultSet::from_xdr(&blocks[1], Limits::none()).unwrap();
    let transaction = |image: &[u8]| {
        let named = Sha256::digest(image);
        let is_of = |pair: &&TransactionResultPair| {
            pair.to_xdr(Limits::none()).unwrap().windows(32).any(|hash| hash == &named[..])
        };
        results.results.iter().find(is_of).map(|pair| pair.transaction_hash.0)
    };
    for image in &blocks[2..] {
        let Some(hash) = transaction(image) else { break };
        let image = InvokeHostFunctionSuccessPreImage::from_xdr(image, Limits::none()).unwrap();
        let is_of = |it: &&ContractEvent| {
            it.contract_id.as_ref().is_some_and(|id| id.0.0 == *contract.as_bytes())
        };
        for event in image.events.iter().filter(is_of) {
            statement.update(LEDGER.0.to_be_bytes());
            statement.update(hash);
            statement.update(event.to_xdr(Limits::none()).unwrap());
        }
    }
    statement.finalize().to_vec()
}

#[test]
fn rewritten_events_are_proven_in_their_former_form() {
    let Some(raw) = recorded() else { return };
    let network = Network::from_name_or_passphrase("mainnet");
    let view = decode(&raw, network.id()).unwrap();
    let delivered = super::events(&view);
    let mut rewritten = Vec::new();
    let contracts: std::collections::BTreeSet<ContractId> =
        delivered.iter().map(|(contract, _)| *contract).collect();
    for contract in contracts {
        let claim = Claim { network: *network.id(), contract, range: LedgerRange::only(LEDGER) };
        let (mut bytes, validators) = proven(&raw, claim).unwrap();
        let of = |xdr: &[u8]| delivered.iter().any(|(_, (_, _, other))| other == xdr);
        bytes.extend(digest(&bytes, &contract));
        let certificate = check(&bytes, network.id(), &validators).unwrap();
        let ids = certificate.events.iter().map(|event| event.rpc_id.to_string());
        let expected = delivered.iter().filter(|(id, _)| *id == contract);
        assert!(ids.eq(expected.map(|(_, (id, _, _))| id.clone())));
        let former = certificate.events.iter().filter(|event| !of(event.xdr));
        rewritten.extend(former.map(|event| (event.transaction, event.topics[1].to_vec())));
    }
    let (transaction, administrator) = &rewritten[0];
    assert!(rewritten.iter().all(|one| one == &rewritten[0]), "{rewritten:?}");

    // Without the administrator in diagnostic events and changes, the former form is not found.
    let at = view.transactions.iter().position(|it| it.hash == *transaction).unwrap();
    let meta = view.transactions[at].meta;
    let start = meta.as_ptr() as usize - raw.as_ptr() as usize;
    let mut changed = raw.clone();
    let places = meta.windows(32).enumerate();
    for (offset, _) in places.filter(|(_, bytes)| *bytes == &administrator[8..]) {
        changed[start + offset] ^= 1;
    }
    let contract = ContractId([0; 32]);
    let claim = Claim { network: *network.id(), contract, range: LedgerRange::only(LEDGER) };
    let error = proven(&changed, claim).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("its events were rewritten"), "{told}");
    assert!(told.contains(&transaction.to_string()) && told.contains("57500008"), "{told}");
}
