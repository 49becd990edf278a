//! The interfaces of the code that a contract ran before what it runs now: stored events have the forms that
//! these declare.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::known::Executable;
use orrery_ledger::domain::ContractId;
use orrery_store::{RowBounds, TransactionPosition};

/// Maximum number of earlier interfaces in an answer, and of their bytes in base64 together.
const MOST: usize = 16;
const MOST_BYTES: usize = 256 << 10;

/// Returns the interfaces, the latest first, as their entries stand in modules, in base64; and whether that is
/// final as long as the store does not change.
pub(super) fn specs(
    deps: &Deps,
    call: &CurrentCall<'_>,
    contract: &ContractId,
    present: Option<&Executable>,
) -> Result<(Vec<String>, bool), ApiError> {
    let Some(ledger) = call.as_of else { return Ok((Vec::new(), true)) };
    let bounds =
        RowBounds { interrupted: Box::new(|| call.allowance.is_over()), ..RowBounds::none() };
    let names = deps.interfaces.reader(bounds)?;
    let codes =
        names.codes(contract, TransactionPosition { ledger, application_order: u32::MAX })?;
    let is_final = names.finish()?;
    let is_present =
        |code: &String| matches!(present, Some(Executable::Wasm(hash)) if hash == code);
    let (mut specs, mut bytes) = (Vec::<String>::new(), 0);
    for code in codes.into_iter().filter(|code| !is_present(&code.to_string())) {
        if specs.len() == MOST || call.allowance.is_over() {
            break;
        }
        let Some(sections) = deps.interfaces.sections(&code)? else { continue };
        let spec = STANDARD.encode(sections);
        bytes += spec.len();
        if bytes > MOST_BYTES {
            break;
        }
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    Ok((specs, is_final && !call.allowance.is_over()))
}
