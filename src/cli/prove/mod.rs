//! `orrery prove`: writes and checks certificates of a contract's events.

mod ledgers;
mod summary;
mod trust;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use orrery::certificate::{CertificateError, Claim, Writer, check};
use orrery::config::{Config, Origin, Settings};
use orrery::decode::decode;
use orrery::domain::{ContractId, LedgerRange, LedgerSeq, Network};
use orrery::durable::write_atomically;
use orrery::store::holds_database;
use orrery::validators::Validators;

use self::ledgers::Ledgers;
use super::remote::Remote;
use super::{Common, Failure, NetworkFlags, open, output, read_file};

/// Prove a contract's events to anyone, or check such a proof
///
/// Writes a certificate: a file which proves that these, and only these, are the events that invocations of
/// the contract emitted in a range of ledgers, down to the signatures of the network's validators. The ledgers
/// come from the data directory, whether a service runs on it or not, from another RPC server, or from files; none
/// of them has to be trusted. With --check, accepts a certificate of the public network, or of the one that is
/// named, and shows what it proves, or refuses it and exits with code 1; needs no data directory and no network
/// access.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery prove --contract C… --from 63092982 --to 63092986 --out events.cert
  orrery prove --contract C… --from 63092982 --to 63092986 --out events.cert --network mainnet lake/
  orrery prove --data-dir archive --contract C… --from 63092982 --to 63092986 --out events.cert
  orrery prove --check events.cert
  orrery prove --check events.cert --network testnet --contract C… --events | jq .topics")]
pub struct Prove {
    /// Files and directories with ledgers, as for `orrery import`, instead of those that are stored
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Check this certificate instead of writing one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "to", "out", "rpc", "paths"])]
    check: Option<PathBuf>,
    /// Contract whose events are proven; with --check, the one that the certificate has to be about
    #[arg(long, alias = "contracts", value_name = "C…", required_unless_present = "check")]
    contract: Option<ContractId>,
    /// First ledger
    #[arg(long, value_name = "LEDGER", required_unless_present = "check")]
    from: Option<u32>,
    /// Last ledger; validators must have signed enough ledgers after it
    #[arg(long, value_name = "LEDGER", required_unless_present = "check")]
    to: Option<u32>,
    /// File that the certificate is written to; an existing one is replaced
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// RPC server whose ledgers are taken, instead of those that are stored
    #[arg(long, value_name = "URL", conflicts_with = "paths")]
    rpc: Option<String>,
    /// With --check: print the events, each as a line of JSON, and the summary on standard error
    #[arg(long, requires = "check")]
    events: bool,
    /// File with the settings [trust] (TOML): the validators that you trust, and how many organisations must
    /// have signed; without it, those of the settings, or those that are built in
    #[arg(long, value_name = "FILE")]
    validators: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkFlags,
}

/// The network whose certificates are checked if no other one is named.
const PUBLIC: &str = "mainnet";

/// Number of ledgers after the range that are read at most. Enough validators of the public network
/// have signed after some fifteen.
const LONGEST_TAIL: u32 = 500;

impl Prove {
    pub fn run(self, common: &Common, remote: &Remote) -> Result<(), Failure> {
        let settings = common.read(self.network.settings())?;
        let network = settings.config.network();
        match (&self.check, self.contract, self.from, self.to, &self.out) {
            (Some(file), ..) => self.check(file, network, &settings.config),
            (None, Some(contract), Some(from), Some(to), Some(out)) => {
                let range = LedgerRange::new(from, to);
                if range.is_empty() {
                    return Err(Failure::usage(format!("--from {from} is after --to {to}")));
                }
                self.write(contract, range, out, &settings, remote)
            }
            // clap demands them.
            _ => Err(Failure::usage("give --contract, --from, --to and --out, or --check")),
        }
    }

    fn check(&self, file: &Path, wanted: Option<Network>, config: &Config) -> Result<(), Failure> {
        let bytes = read_file(file)?;
        let refused = |error: CertificateError| refused(file, &error);
        let claim = Claim::read(&bytes).map_err(refused)?;
        // The certificate must not choose whose validators count.
        let network = wanted.unwrap_or_else(|| Network::from_name_or_passphrase(PUBLIC));
        if *network.id() != claim.network {
            let of = Network::well_known().find(|known| *known.id() == claim.network);
            let of = match of {
                Some(known) => format!("the network {known}"),
                None => format!("a network that is not known, with the id {}", claim.network),
            };
            return Err(Failure::failed(format!(
                "{} is of {of}, not of {network}: if you mean its network, name it with --network or \
                 --network-passphrase; if not, ask for a certificate of {network}",
                file.display()
            )));
        }
        let validators = trust::validators(self.validators.as_deref(), config, &network)?;
        let certificate = check(&bytes, network.id(), &validators).map_err(refused)?;
        if let Some(wanted) = self.contract.filter(|wanted| *wanted != claim.contract) {
            return Err(Failure::failed(format!(
                "{} is about contract {}, and not about {wanted}: ask for the certificate of that one",
                file.display(),
                claim.contract
            )));
        }
        let text = summary::text(&certificate, &network);
        if !self.events {
            return output::print(&text);
        }
        output::tell(text.trim_end_matches('\n'));
        certificate.events.iter().try_for_each(|event| output::print_json(&summary::line(event)))
    }

    fn write(
        &self,
        contract: ContractId,
        range: LedgerRange,
        out: &Path,
        settings: &Settings,
        remote: &Remote,
    ) -> Result<(), Failure> {
        let config = &settings.config;
        let wanted = config.network();
        let mut ledgers = match &self.rpc {
            _ if !self.paths.is_empty() => Ledgers::of_files(&self.paths, wanted)?,
            Some(url) => Ledgers::of_server(url, wanted)?,
            None => match own_ledgers(settings, remote)? {
                Some(ledgers) => ledgers,
                None => Ledgers::of_server(&rpc_address(&remote.base()?), wanted)?,
            },
        };
        let network = ledgers.network().clone();
        let validators = trust::validators(self.validators.as_deref(), config, &network)?;
        let claim = Claim { network: *network.id(), contract, range };
        let bytes = write(claim, &validators, &mut ledgers)?;
        // What others will check is checked here first.
        let certificate = check(&bytes, network.id(), &validators).map_err(failed)?;
        write_atomically(out, |file| file.write_all(&bytes))
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", out.display())))?;
        let size = output::bytes(bytes.len() as u64);
        let text = summary::text(&certificate, &network);
        output::print(&format!("{text}written to   {} ({size})\n", out.display()))
    }
}

/// Returns the ledgers of the data directory; `None` when another service is named, or there is no store
/// in the directory.
fn own_ledgers(settings: &Settings, remote: &Remote) -> Result<Option<Ledgers>, Failure> {
    let data_dir = &settings.config.data_dir;
    if remote.is_named() {
        return Ok(None);
    }
    if !holds_database(data_dir).unwrap_or(false) {
        let is_mistyped = matches!(data_dir.try_exists(), Ok(false));
        return match settings.origin("data_dir") {
            Origin::Default => Ok(None),
            _ if is_mistyped => Err(open::nothing_in(data_dir)),
            _ => Ok(None),
        };
    }
    Ledgers::of_directory(open::look(settings)?).map(Some)
}

/// Returns the certificate of a claim.
fn write(claim: Claim, validators: &Validators, ledgers: &mut Ledgers) -> Result<Vec<u8>, Failure> {
    let end = LedgerSeq(claim.range.last.0.saturating_add(LONGEST_TAIL));
    let mut writer = Writer::new(claim, validators).map_err(failed)?;
    while let Some(next) = writer.next().filter(|next| *next <= end) {
        let Some(ledger) = ledgers.take(next)? else { break };
        let view = decode(&ledger.xdr, &claim.network)
            .map_err(|error| Failure::failed(format!("{}: {error}", ledger.origin)))?;
        writer
            .add(&view)
            .map_err(|error| Failure::failed(format!("{}: {error}", ledger.origin)))?;
    }
    writer.finish().map(|(_, bytes)| bytes).map_err(failed)
}

/// Returns the address of a service's RPC interface, which is beside its REST interface.
fn rpc_address(base: &str) -> String {
    base.strip_suffix("/rest").map_or_else(|| base.to_owned(), |root| format!("{root}/rpc"))
}

fn failed(error: CertificateError) -> Failure {
    Failure::failed(error.to_string())
}

fn refused(file: &Path, error: &CertificateError) -> Failure {
    Failure::failed(format!("{} is refused: {error}", file.display()))
}
