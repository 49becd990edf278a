//! Changed certificates: each is refused, and the sentence names the ledger.

use orrery_ledger::certificate::{Claim, Writer};
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{ContractId, LedgerRange};
use orrery_ledger::validators::Validators;
use orrery_testkit::newest::Newest;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::size;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::Chain;

/// Length of what precedes the ledgers: format, network, contract, range.
pub const HEAD: usize = 8 + 32 + 32 + 4 + 4;
/// Place of the contract in it.
const CONTRACT: usize = 8 + 32;

/// Returns a certificate with a random change that is not aimed at a part, and its description.
pub fn mutated(bytes: &[u8], rng: &mut ChaCha8Rng) -> (Vec<u8>, String) {
    let mut changed = bytes.to_vec();
    // Half of the places are near the beginning or the end, where the fields are.
    let at = match rng.random_range(0..4) {
        0 => rng.random_range(0..bytes.len().min(600)),
        1 => bytes.len() - 1 - rng.random_range(0..bytes.len().min(600)),
        _ => rng.random_range(0..bytes.len()),
    };
    let how = match rng.random_range(0..8) {
        0..=2 => {
            changed[at] ^= 1 << rng.random_range(0..8);
            "a bit is changed"
        }
        3 => {
            changed[at] = changed[at].wrapping_add(rng.random_range(1..=255));
            "a byte is changed"
        }
        4 => {
            changed.truncate(at);
            "it is cut off"
        }
        5 => {
            let count = rng.random_range(1..64);
            changed.extend((0..count).map(|_| rng.random_range(0..=255u8)));
            "bytes follow"
        }
        6 => {
            let end = (at + rng.random_range(1..64)).min(bytes.len());
            changed.drain(at..end);
            "bytes are left out"
        }
        _ => {
            let count = rng.random_range(1..64usize);
            changed.splice(at..at, vec![0; count]);
            "bytes are put in"
        }
    };
    (changed, format!("{how} at {at} of {}", bytes.len()))
}

/// Asserts that a certificate is refused, and that the sentence names a ledger, except where the
/// certificate is not recognised at all.
fn refused(chain: &Chain, bytes: &[u8], how: &str) {
    let error = match chain.check(bytes) {
        Ok(certificate) => panic!("{how} is accepted: {:?}", certificate.claim),
        Err(error) => error,
    };
    let sentence = error.to_string();
    let unrecognised = ["this is not a certificate, ", "the certificate is of the network "];
    if !unrecognised.iter().any(|begin| sentence.starts_with(begin)) {
        assert!(sentence.contains("ledger"), "{how}: {sentence}");
    }
}

/// A certificate in parts: what precedes the ledgers, each ledger, and the digest.
pub struct Parts {
    pub head: Vec<u8>,
    pub ledgers: Vec<Vec<u8>>,
    pub digest: Vec<u8>,
}

impl Parts {
    pub fn of(chain: &Chain, validators: &Validators, claim: Claim) -> Self {
        let mut writer = Writer::new(claim, validators).unwrap();
        let (head, mut ledgers) = (writer.take(), Vec::new());
        while let Some(next) = writer.next() {
            writer.add(&decode(&chain.ledgers[&next], chain.network.id()).unwrap()).unwrap();
            ledgers.push(writer.take());
        }
        let (_, digest) = writer.finish().unwrap();
        Self { head, ledgers, digest }
    }

    pub fn with(&self, ledgers: &[Vec<u8>]) -> Vec<u8> {
        [&self.head, &ledgers.concat(), &self.digest].map(Vec::as_slice).concat()
    }

    fn whole(&self) -> Vec<u8> {
        self.with(&self.ledgers)
    }
}

/// The digest of a certificate that begins with `head`, over the events of a claim.
fn digest(head: &[u8], chain: &Chain, claim: &Claim) -> Vec<u8> {
    let mut statement = Sha256::new_with_prefix(head);
    for (ledger, _) in chain.ledgers.range(claim.range.first..=claim.range.last) {
        for (contract, (_, transaction, xdr)) in super::events(&chain.view(*ledger)) {
            if contract == claim.contract {
                statement.update(ledger.0.to_be_bytes());
                statement.update(transaction.as_bytes());
                statement.update(xdr);
            }
        }
    }
    statement.finalize().to_vec()
}

/// The chains, each with a certificate of its busiest contract.
fn certificates() -> Vec<(Chain, Claim)> {
    let sandbox = Chain::trusting_all(local(), ledgers(sandbox(5, 0..=12), 16), 1);
    let made = Chain::trusting_all(local(), Newest::made(local(), 4).ledgers, 1);
    let busiest = |chain: Chain, range| {
        let claim = chain.claim(chain.contracts()[0], range);
        (chain, claim)
    };
    let mut all =
        vec![busiest(sandbox, LedgerRange::new(3, 14)), busiest(made, LedgerRange::new(2, 20))];
    if let Some(public) = Chain::public() {
        let range = LedgerRange::new(public.first(), public.first().0 + 1);
        all.push(busiest(public, range));
    }
    all
}

#[test]
fn changed_bytes_are_refused() {
    let count = size::choose(200, 2000);
    let certificates = certificates();
    let share = count / certificates.len() as u64 + 1;
    for (seed, (chain, claim)) in (0..).zip(certificates) {
        let (bytes, _) = chain.proven(claim);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..share {
            let (changed, how) = mutated(&bytes, &mut rng);
            refused(&chain, &changed, &how);
        }
    }
}

#[test]
fn every_byte_of_a_certificate_is_bound() {
    let chain = Chain::trusting_all(local(), ledgers(sandbox(7, 1..=3), 12), 1);
    let claim = chain.claim(chain.contracts()[0], LedgerRange::new(5, 9));
    let (bytes, _) = chain.proven(claim);
    let step = size::choose(3, 1) as usize;
    println!("{} bytes", bytes.len());
    for at in (0..bytes.len()).step_by(step) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&chain, &changed, &format!("a bit of byte {at}"));
    }
}

#[test]
fn moved_and_missing_ledgers_are_refused() {
    for (chain, claim) in certificates() {
        let parts = Parts::of(&chain, &chain.validators, claim);
        chain.check(&parts.whole()).unwrap();
        let count = parts.ledgers.len();
        for at in 0..count {
            let mut missing = parts.ledgers.clone();
            missing.remove(at);
            refused(&chain, &parts.with(&missing), &format!("without ledger {at}"));
            let mut twice = parts.ledgers.clone();
            twice.insert(at, parts.ledgers[at].clone());
            refused(&chain, &parts.with(&twice), &format!("ledger {at} twice"));
            for other in at + 1..count.min(at + 4) {
                let mut exchanged = parts.ledgers.clone();
                exchanged.swap(at, other);
                refused(&chain, &parts.with(&exchanged), &format!("{at} and {other} exchanged"));
            }
            refused(&chain, &parts.with(&parts.ledgers[..at]), &format!("cut off at ledger {at}"));
        }
        // Another range in the head, with the digest that fits it.
        for (first, last) in [(1i64, 0i64), (-1, 0), (0, 1), (0, -1)] {
            let (LedgerRange { first: a, last: b }, mut head) = (claim.range, parts.head.clone());
            let moved = [i64::from(a.0) + first, i64::from(b.0) + last].map(|it| it as u32);
            head.truncate(HEAD - 8);
            moved.iter().for_each(|number| head.extend(number.to_be_bytes()));
            let digest = digest(&head, &chain, &claim);
            let bytes = [head, parts.ledgers.concat(), digest].concat();
            refused(&chain, &bytes, &format!("range {moved:?}"));
        }
    }
}

#[test]
fn a_certificate_ends_where_the_threshold_is_reached() {
    let Some(chain) = Chain::public() else { return };
    let claim = chain.claim(chain.contracts()[0], LedgerRange::only(chain.first()));
    let organisations = chain.validators.organisations().to_vec();
    let trusting = |threshold| Validators::new(organisations.clone(), threshold).unwrap();
    for threshold in [1, 2, 4] {
        // It ends too early for more, and too late for fewer.
        let bytes = Parts::of(&chain, &trusting(threshold), claim).whole();
        refused(&chain, &bytes, &format!("a certificate of {threshold} organisations"));
        let changed = Chain { validators: trusting(threshold), ..chain.clone() };
        changed.check(&bytes).unwrap();
        let (longer, _) = chain.proven(claim);
        refused(&changed, &longer, &format!("a certificate of 5, and {threshold} are needed"));
    }
}

/// The contract is what is asked, and is not evidence: a certificate of another one, whose digest was
/// made again, proves the events of that one, and never those of the first.
#[test]
fn another_contract_makes_another_true_certificate() {
    let chain = Chain::trusting_all(local(), ledgers(sandbox(5, 0..=12), 16), 1);
    let contracts = chain.contracts();
    let range = LedgerRange::new(3, 14);
    let (bytes, _) = chain.proven(chain.claim(contracts[0], range));
    for other in contracts[1..].iter().chain([&ContractId([9; 32])]) {
        let mut changed = bytes.clone();
        changed[CONTRACT..CONTRACT + 32].copy_from_slice(other.as_bytes());
        refused(&chain, &changed, "another contract");
        let claim = chain.claim(*other, range);
        let end = changed.len() - 32;
        changed.truncate(end);
        changed.extend(digest(&changed[..HEAD], &chain, &claim));
        let (expected, _) = chain.proven(claim);
        assert_eq!(changed, expected);
    }
}
