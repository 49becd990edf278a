//! The ledgers that a certificate is made of: from a data directory, whether a service runs on it or not,
//! from an RPC server, or from files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orrery::control::{Client, RAW_LEDGER, STATUS};
use orrery::domain::{Fetched, LedgerSeq, LedgerSource, Network, Origin, RawLedger};
use orrery::service::Node;
use orrery::source::files::{LedgerFiles, Survey};
use orrery::source::rpc::{RpcSettings, RpcSource};
use tokio::runtime::Runtime;

use crate::cli::Failure;
use crate::cli::open::Opened;
use crate::cli::serve::runtime;

/// Number of ledgers that are requested at once; one of the public network has about two megabytes.
const LEDGERS_PER_REQUEST: u32 = 16;

/// Ledgers of one network.
pub struct Ledgers {
    network: Network,
    from: Place,
}

enum Place {
    Files(Box<LedgerFiles>),
    Directory(Box<Node>),
    Service(Box<Client>),
    Server { runtime: Runtime, source: Box<RpcSource>, fetched: BTreeMap<LedgerSeq, RawLedger> },
}

impl Ledgers {
    /// The ledgers of files. Their network is `wanted`, or else the one that a manifest names.
    pub fn of_files(paths: &[PathBuf], wanted: Option<Network>) -> Result<Self, Failure> {
        let survey = Survey::of(paths)?;
        let network = wanted.or_else(|| survey.network()).ok_or_else(|| {
            Failure::usage("the files do not name their network: give it with --network")
        })?;
        survey.check_network(&network)?;
        Ok(Self { network, from: Place::Files(Box::new(LedgerFiles::new(paths))) })
    }

    /// The ledgers of a data directory.
    pub fn of_directory(opened: Opened) -> Result<Self, Failure> {
        match opened {
            Opened::Local(node) => {
                let network = node.store().network().clone();
                Ok(Self { network, from: Place::Directory(node) })
            }
            Opened::Running(mut client) => {
                let network = Network::from_passphrase(client.ask(STATUS, &())?.network_passphrase);
                Ok(Self { network, from: Place::Service(Box::new(client)) })
            }
        }
    }

    /// The ledgers of an RPC server, which names its network. They are old, and so the server may be far
    /// behind its network.
    pub fn of_server(url: &str, wanted: Option<Network>) -> Result<Self, Failure> {
        let settings = RpcSettings {
            most_ledgers: LEDGERS_PER_REQUEST,
            may_be_behind: true,
            ..RpcSettings::new(url)
        };
        let source = RpcSource::new(&settings);
        let mut source = Box::new(source.map_err(|error| Failure::failed(error.to_string()))?);
        let runtime = runtime()?;
        let named = runtime
            .block_on(source.passphrase())
            .map_err(|error| Failure::failed(error.to_string()))?
            .map(Network::from_passphrase);
        let network = match (wanted, named) {
            (Some(wanted), Some(named)) if wanted != named => {
                return Err(Failure::failed(format!(
                    "{} serves {named}, and {wanted} is wanted: give another server, or another \
                     --network",
                    source.name()
                )));
            }
            (wanted, named) => wanted.or(named).ok_or_else(|| {
                Failure::usage("the server does not name its network: give it with --network")
            })?,
        };
        Ok(Self { network, from: Place::Server { runtime, source, fetched: BTreeMap::new() } })
    }

    /// Returns their network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns a ledger; `None` if it is not there. The sequence numbers ascend from call to call.
    pub fn take(&mut self, sequence: LedgerSeq) -> Result<Option<RawLedger>, Failure> {
        match &mut self.from {
            Place::Files(files) => {
                for ledger in files.by_ref() {
                    let ledger = ledger?;
                    if ledger.sequence == sequence {
                        return Ok(Some(ledger));
                    }
                }
                Ok(None)
            }
            Place::Directory(node) => {
                let raw = node.store().raw_ledger(sequence);
                let raw = raw.map_err(|error| Failure::failed(error.to_string()))?;
                Ok(raw.map(|xdr| of_store(sequence, xdr)))
            }
            Place::Service(client) => {
                Ok(client.ask(RAW_LEDGER, &sequence.0)?.0.map(|xdr| of_store(sequence, xdr)))
            }
            Place::Server { runtime, source, fetched } => {
                if let Some(ledger) = fetched.remove(&sequence) {
                    return Ok(Some(ledger));
                }
                let answer = runtime.block_on(source.fetch(sequence));
                match answer.map_err(|error| Failure::failed(error.to_string()))? {
                    Fetched::Ledgers(ledgers) => {
                        fetched.extend(ledgers.into_iter().map(|one| (one.sequence, one)));
                        Ok(fetched.remove(&sequence))
                    }
                    Fetched::NotYet | Fetched::Ended => Ok(None),
                }
            }
        }
    }
}

/// Returns a ledger of a data directory.
fn of_store(sequence: LedgerSeq, xdr: Vec<u8>) -> RawLedger {
    let origin = Origin { name: format!("stored ledger {sequence}").into(), position: None };
    RawLedger { sequence, xdr, compressed: None, origin }
}
