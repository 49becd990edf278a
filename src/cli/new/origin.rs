//! Fetches a contract's module from a network through an RPC server.

use orrery::domain::{ContractId, instance_key};
use orrery::source::rpc::{RpcEntries, RpcSettings};
use stellar_xdr::{ContractExecutable, LedgerEntryData, LedgerKey, LedgerKeyContractCode, ScVal};

use super::super::remote::Remote;
use super::super::serve::runtime;
use super::Failure;

/// Ends of the addresses of the REST interface and of JSON-RPC on the same service.
const REST: &str = "/rest";
const RPC: &str = "/rpc";

/// Fetches a contract's module from the service through its JSON-RPC interface, as clients of
/// Stellar RPC do.
pub fn of_contract(remote: &Remote, contract: ContractId) -> Result<Vec<u8>, Failure> {
    let base = remote.base()?;
    let Some(root) = base.strip_suffix(REST) else {
        return Err(Failure::usage(format!("the base address {base} does not end in {REST}")));
    };
    let mut settings = RpcSettings::new(format!("{root}{RPC}"));
    if let Some(token) = &remote.jwt {
        settings.headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    runtime()?.block_on(async {
        let server = RpcEntries::new(&settings).map_err(|error| with_hint(&error))?;
        let entry = async |key: LedgerKey| {
            let held = server.look_up(&[key]).await.map_err(|error| with_hint(&error))?;
            Ok::<_, Failure>(held.entries.into_iter().flatten().next().map(|held| held.entry.data))
        };
        let Some(LedgerEntryData::ContractData(instance)) = entry(instance_key(&contract)).await?
        else {
            return Err(with_hint(&format!("there is no contract {contract} on this network")));
        };
        let ScVal::ContractInstance(instance) = instance.val else {
            return Err(with_hint(&format!("{contract} is not a contract with code")));
        };
        let hash = match instance.executable {
            ContractExecutable::Wasm(hash) => hash,
            ContractExecutable::StellarAsset => {
                return Err(Failure::failed(format!(
                    "{contract} is a contract of an asset, which has no module: write a program for it \
                     without --contract, with the functions of SEP-41"
                )));
            }
            ContractExecutable::ExternalRef(_) => {
                return Err(with_hint(&format!(
                    "the code of {contract} is an external reference, which is not supported"
                )));
            }
        };
        let key = LedgerKey::ContractCode(LedgerKeyContractCode { hash });
        match entry(key).await? {
            Some(LedgerEntryData::ContractCode(code)) => Ok(code.code.into()),
            _ => Err(with_hint(&format!("the code of {contract} is archived"))),
        }
    })
}

fn with_hint(problem: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("{problem}; use --wasm to read the contract's module from a file"))
}
