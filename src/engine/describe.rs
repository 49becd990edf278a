//! Human-readable names of ledger entries.

use soroban_env_host::xdr::{LedgerKey, PublicKey, ScAddress, ScVal};
use stellar_strkey::{Contract, ed25519};

/// Maximum length of a quoted value, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// Describes an entry in a few words.
pub(super) fn describe(key: &LedgerKey) -> String {
    match key {
        LedgerKey::Account(account) => format!("account {}", public_key(&account.account_id.0)),
        LedgerKey::Trustline(line) => {
            format!("a trustline of {}", public_key(&line.account_id.0))
        }
        LedgerKey::ContractCode(code) => format!("contract code {}", hex::encode(code.hash.0)),
        LedgerKey::ContractData(data) => {
            let contract = address(&data.contract);
            match &data.key {
                ScVal::LedgerKeyContractInstance => format!("the instance of {contract}"),
                key => format!("data of {contract} under {}", quoted(key)),
            }
        }
        other => format!("a ledger entry of type {}", other.name()),
    }
}

/// Formats a value as JSON, shortened for a message.
pub(super) fn quoted(value: &ScVal) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| format!("{value:?}"));
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn address(address: &ScAddress) -> String {
    match address {
        ScAddress::Contract(contract) => Contract(contract.0.0).to_string().as_str().to_owned(),
        ScAddress::Account(account) => public_key(&account.0),
        other => format!("an address of type {}", other.name()),
    }
}

fn public_key(key: &PublicKey) -> String {
    let PublicKey::PublicKeyTypeEd25519(key) = key;
    ed25519::PublicKey(key.0).to_string().as_str().to_owned()
}
