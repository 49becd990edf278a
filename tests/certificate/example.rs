//! `examples/check_certificate.py`, which was written from the description of the format and shares
//! nothing with the checker of the product, accepts and refuses the same certificates.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use orrery_ledger::domain::LedgerRange;
use orrery_testkit::newest::Newest;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::size;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::Chain;
use super::mutations::mutated;

/// A directory of its own that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("orrery-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/check_certificate.py")
}

/// Whether there is a Python that runs the checker. Prints a message if not, because a skipped test
/// must not look like one that ran.
fn is_missing() -> bool {
    let ran = Command::new("python3").args(["-c", "import tomllib"]).output();
    let missing = !ran.is_ok_and(|ran| ran.status.success());
    if missing {
        eprintln!("skipped: there is no python3 of version 3.11 or newer");
    }
    missing
}

/// The `[trust]` settings of a chain.
fn trust(chain: &Chain) -> String {
    let mut text = format!("[trust]\nthreshold = {}\n", chain.validators.threshold());
    text += "[trust.validators]\n";
    for organisation in chain.validators.organisations() {
        let keys: Vec<_> = organisation.validators.iter().map(ToString::to_string).collect();
        writeln!(text, "{:?} = {keys:?}", organisation.name).unwrap();
    }
    text
}

fn run(chain: &Chain, scratch: &Scratch, certificate: &[u8], events: bool) -> Output {
    let (file, validators) = (scratch.0.join("certificate"), scratch.0.join("trust.toml"));
    std::fs::write(&file, certificate).unwrap();
    std::fs::write(&validators, trust(chain)).unwrap();
    let mut command = Command::new("python3");
    command.arg(script()).arg(file).arg("--validators").arg(validators);
    command.args(["--passphrase", chain.network.passphrase()]);
    command.args(events.then_some("--events")).output().unwrap()
}

/// Asserts that the example accepts the certificates of a chain, with the same events, and refuses
/// mutations of each.
fn agrees(chain: &Chain, scratch: &Scratch, ranges: &[LedgerRange], mutations: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let contracts = chain.contracts();
    for (range, contract) in ranges.iter().zip(contracts.iter().cycle()) {
        let (bytes, _) = chain.proven(chain.claim(*contract, *range));
        let certificate = chain.check(&bytes).unwrap();
        let ran = run(chain, scratch, &bytes, false);
        let told = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        for part in [
            format!("contract     {contract}\n"),
            format!("ledgers      {} to {}\n", range.first, range.last),
            format!("events       {}\n", certificate.events.len()),
            format!("invocations  {}\n", certificate.invocations),
            format!("digest       {}\n", certificate.digest),
        ] {
            assert!(told.contains(&part), "{part} is not in {told}");
        }
        for signed in &certificate.attested_by {
            let part = format!("{} ({})", signed.organisation, signed.ledger);
            assert!(told.contains(&part), "{part} is not in {told}");
        }
        let listed = run(chain, scratch, &bytes, true);
        let ids: Vec<String> = String::from_utf8(listed.stdout)
            .unwrap()
            .lines()
            .map(|line| line.split('"').nth(3).unwrap().to_owned())
            .collect();
        let expected: Vec<_> = certificate.events.iter().map(|it| it.rpc_id.to_string()).collect();
        assert_eq!(ids, expected);
        for _ in 0..mutations {
            let (changed, how) = mutated(&bytes, &mut rng);
            assert!(chain.check(&changed).is_err(), "{how}");
            let ran = run(chain, scratch, &changed, false);
            let told = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(1), "{how}: {told}");
            assert!(told.starts_with("refused: "), "{how}: {told}");
        }
    }
}

#[test]
fn the_example_agrees_on_made_chains() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new("certificates-made");
    let range = |chain: &Chain| LedgerRange::new(chain.first(), chain.last().0 - 1);
    let mutations = size::choose(8, 100);
    let chain = Chain::trusting_all(local(), ledgers(sandbox(5, 0..=12), 24), 1);
    agrees(&chain, &scratch, &[range(&chain), LedgerRange::new(4, 4)], mutations);
    let made = Newest::made(local(), 4);
    let mut ranges: Vec<_> =
        made.dropped.iter().map(|ledger| LedgerRange::new(2, ledger.0 - 1)).collect();
    let chain = Chain::trusting_all(local(), made.ledgers, 1);
    ranges.push(range(&chain));
    agrees(&chain, &scratch, &ranges, 1);
}

#[test]
fn the_example_agrees_on_ledgers_of_the_public_network() {
    let Some(chain) = Chain::public().filter(|_| !is_missing()) else { return };
    let scratch = Scratch::new("certificates-public");
    let (first, attested) = (chain.first().0, chain.attested().0);
    let ranges: Vec<_> = (first..=attested).map(|last| LedgerRange::new(first, last)).collect();
    let count = size::choose(2, ranges.len() as u64) as usize;
    agrees(&chain, &scratch, &ranges[ranges.len() - count..], size::choose(4, 50));
}
