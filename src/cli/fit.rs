//! Whether a program's module has functions of each contract that it is deployed for or tried on. The service
//! refuses to deploy a module with functions of none, if it knows them all; here a person is warned of the others.

use std::collections::BTreeSet;

use orrery::domain::ContractId;
use orrery::programs::engine::contract_spec;
use stellar_xdr::ScSpecEntry;

use super::new::of_contract;
use super::remote::Remote;

/// Number of contracts whose interfaces are fetched: each takes two requests.
const MOST_CONTRACTS: usize = 4;
/// Number of functions that a warning names.
const MOST_NAMES: usize = 5;

/// Returns a warning for each contract of whose functions the module has none. A contract whose
/// interface cannot be fetched is left out.
pub fn warnings(remote: &Remote, code: &[u8], contracts: &[String]) -> Vec<String> {
    let Some(own) = functions(code) else { return Vec::new() };
    let contracts = contracts.iter().filter_map(|text| text.parse::<ContractId>().ok());
    let interfaces = contracts
        .take(MOST_CONTRACTS)
        .filter_map(|contract| Some((contract, functions(&of_contract(remote, contract).ok()?)?)));
    interfaces.filter_map(|(contract, theirs)| warning(contract, &own, &theirs)).collect()
}

fn functions(code: &[u8]) -> Option<BTreeSet<String>> {
    let spec = contract_spec(code).ok()?;
    let names = spec.iter().filter_map(|entry| match entry {
        ScSpecEntry::FunctionV0(function) => Some(function.name.to_utf8_string_lossy()),
        _ => None,
    });
    Some(names.collect())
}

fn warning(
    contract: ContractId,
    own: &BTreeSet<String>,
    theirs: &BTreeSet<String>,
) -> Option<String> {
    // A module without an interface may still have functions.
    if own.is_empty() || theirs.is_empty() || !own.is_disjoint(theirs) {
        return None;
    }
    let listed = |names: &BTreeSet<String>| {
        let shown: Vec<&str> = names.iter().map(String::as_str).take(MOST_NAMES).collect();
        let more = if names.len() > MOST_NAMES { ", …" } else { "" };
        format!("{}{more}", shown.join(", "))
    };
    Some(format!(
        "the module has none of the functions of {contract} ({}), so its runs for that contract \
         fail; it has {}: check --code-path and --contract",
        listed(theirs),
        listed(own)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_functions_of_the_contract_is_warned_of() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let contract = ContractId([0; 32]);
        let market: BTreeSet<String> = set(&["cancel", "fill", "place"]);
        assert_eq!(warning(contract, &set(&["fill", "other"]), &market), None);
        for (own, theirs) in [(&market, &set(&[])), (&set(&[]), &market)] {
            assert_eq!(warning(contract, own, theirs), None, "nothing is known of one of them");
        }
        let text = warning(contract, &set(&["vote"]), &market).unwrap();
        assert!(text.contains("(cancel, fill, place)") && text.contains("it has vote"), "{text}");
        let text = warning(contract, &set(&["a", "b", "c", "d", "e", "f"]), &market).unwrap();
        assert!(text.contains("it has a, b, c, d, e, …:"), "{text}");
    }
}
