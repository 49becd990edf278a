//! Whether a module can be a program for its contracts: each run of one that has none of their functions
//! fails.

use std::collections::BTreeSet;

use super::ProgramError;
use orrery_executables::lookup::Ran;
use orrery_executables::{InterfaceReader, Interfaces, Tried};
use orrery_interfaces::{Interface, asset_contract};
use orrery_ledger::domain::{ContractId, text};
use orrery_store::{StoreError, TransactionPosition};

/// Number of contracts up to which their interfaces are read.
const MOST_CONTRACTS: usize = 16;
/// Number of functions that the refusal names.
const MOST_NAMES: usize = 5;
/// Length up to which the name of a function is shown, in characters: as long as those of contracts are.
const LONGEST_NAME: usize = 32;
/// What a contract runs when it is created, which is not indexed.
const CONSTRUCTOR: &[u8] = b"__constructor";

/// Refuses a module with these functions if the interfaces of all these contracts are known as of the
/// newest ledger, and the module has a function of none of them.
///
/// # Errors
/// [`ProgramError::Unfit`], and errors of the store.
pub(super) fn check(
    interfaces: &Interfaces,
    module: &[String],
    contracts: &[ContractId],
) -> Result<(), ProgramError> {
    let Some(ledger) = interfaces.store().ends().latest else { return Ok(()) };
    let newest = TransactionPosition { ledger, application_order: u32::MAX };
    if contracts.len() > MOST_CONTRACTS {
        return Ok(());
    }
    // This thread is one for uploads, which may read and wait.
    if let Some(place) = interfaces.store().place_of(ledger) {
        interfaces.wait_until_indexed(place);
    }
    let reader = match interfaces.loading_reader() {
        // Without the index, nothing is known.
        Err(StoreError::UnknownConsumer(_)) => return Ok(()),
        reader => reader?,
    };
    let mut others = None;
    for contract in contracts {
        let Some(functions) = functions(&reader, contract, newest)? else { return Ok(()) };
        if module.iter().any(|own| functions.contains(own.as_bytes())) {
            return Ok(());
        }
        others.get_or_insert((*contract, functions));
    }
    let Some((contract, functions)) = others else { return Ok(()) };
    let own =
        module.iter().map(String::as_bytes).filter(|name| *name != CONSTRUCTOR && *name != b"_");
    Err(ProgramError::Unfit {
        contract,
        functions: listed(functions.iter().map(Vec::as_slice)),
        own: listed(own),
    })
}

/// Returns the functions that a contract declares; `None` when they are not known, or it declares none.
fn functions(
    reader: &InterfaceReader<'_>,
    contract: &ContractId,
    at: TransactionPosition,
) -> Result<Option<BTreeSet<Vec<u8>>>, StoreError> {
    let names = |interface: &Interface| {
        let names = interface.functions().filter(|name| *name != CONSTRUCTOR);
        Some(names.map(<[u8]>::to_vec).collect::<BTreeSet<_>>()).filter(|names| !names.is_empty())
    };
    Ok(match reader.ran_after(contract, at)? {
        Some(Ran::Asset) => names(asset_contract()),
        Some(Ran::Code(hash)) => {
            // What it ran before the last transaction is tried, too.
            let tried = reader.tried(contract, at);
            let of_code =
                tried.iter().find(|it| matches!(it, Tried::Code(code, _) if *code == hash));
            of_code.and_then(|it| names(it.interface()))
        }
        _ => None,
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let mut shown: Vec<String> = names
        .take(MOST_NAMES + 1)
        .map(|name| text(name).chars().take(LONGEST_NAME).collect())
        .collect();
    if shown.is_empty() {
        return "none".to_owned();
    }
    if shown.len() > MOST_NAMES {
        shown[MOST_NAMES] = "…".to_owned();
    }
    shown.join(", ")
}
