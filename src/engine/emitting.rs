//! Implements `x.9`, the host function with which a program emits a row.
//!
//! An emit is recorded here, and represented in the host's list of contract events by an event
//! under a secret topic. The host marks the events of frames that are rolled back, whatever the
//! cause; so the unmarked events at the end determine which emits count, and in which order.

use orrery_ledger::domain::{ContractId, Emit};
use soroban_env_host::events::HostEvent;
use soroban_env_host::xdr::{
    ContractEventBody, Limits as XdrLimits, ScErrorType, ScMap, ScVal, WriteXdr,
};
use soroban_env_host::{Env, EnvBase, Host, HostError, TryFromVal, U32Val, Val, VecObject, Void};
use wasmtime::{Caller, Linker};

use super::guest::{Guest, Run, enter, leave};
use super::interface::EMIT;
use super::limits::{Bytes, Limits, Stop};

const NAME: &str = "emit";

pub(super) fn define(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(
        EMIT.0,
        EMIT.1,
        |mut caller: Caller<'_, Guest>, target: i64, fields: i64| -> wasmtime::Result<i64> {
            let host = enter(&caller, NAME)?;
            let result = {
                let guest = caller.data();
                guest
                    .objects
                    .read(target)
                    .and_then(|target| emit(&host, &guest.run, target, guest.objects.read(fields)?))
            };
            leave(&mut caller, NAME, &host, result)
        },
    )?;
    Ok(())
}

fn emit(host: &Host, run: &Run, target: Val, fields: Val) -> Result<Void, HostError> {
    let stop = |why: String| {
        HostError::from({
            run.bounds.stop(Stop::Guest(why));
            super::limits::STOPPED
        })
    };
    host.check_val_integrity(target)?;
    host.check_val_integrity(fields)?;
    let ScVal::Symbol(target) = ScVal::try_from_val(host, &target)? else {
        return Err(stop("the program emitted a row whose target is no symbol".to_owned()));
    };
    let target = target.to_utf8_string_lossy();
    let limits = &run.bounds.limits;
    let row = rows_value(host, fields, &target, limits)
        .and_then(|fields| checked(run, &target, fields, limits));
    let (fields, bytes) = row.map_err(stop)?;
    let index = {
        let mut emitted = run.emitted.borrow_mut();
        emitted.push((target, fields));
        u32::try_from(emitted.len() - 1).unwrap_or(u32::MAX)
    };
    run.emitted_bytes.set(run.emitted_bytes.get() + bytes);
    host.contract_event(topics(host, run)?, U32Val::from(index).to_val())
}

/// Converts the emitted value to XDR, unless it has too many columns.
fn rows_value(host: &Host, fields: Val, target: &str, limits: &Limits) -> Result<ScMap, String> {
    let Ok(map) = soroban_env_host::MapObject::try_from(fields) else {
        return Err(format!("the program emitted '{target}' without a struct of named fields"));
    };
    let most = limits.columns;
    let columns = host.map_len(map).map_or(u32::MAX, u32::from) as usize;
    if columns > most {
        return Err(format!("'{target}' has {columns} fields; a row may have {most}"));
    }
    match ScVal::try_from_val(host, &fields) {
        Ok(ScVal::Map(Some(map))) => Ok(map),
        Ok(_) => Err(format!("the program emitted '{target}' without a struct of named fields")),
        Err(error) if error.is_type(ScErrorType::Context) => {
            let most = limits.depth;
            Err(format!("the fields of '{target}' are nested deeper than {most} levels"))
        }
        Err(error) => Err(format!("the fields of '{target}' cannot be read: {error:?}")),
    }
}

fn checked(
    run: &Run,
    target: &str,
    fields: ScMap,
    limits: &Limits,
) -> Result<(ScMap, usize), String> {
    if run.emitted.borrow().len() >= limits.emits as usize {
        return Err(format!("the program emitted more than {} rows in one run", limits.emits));
    }
    if fields.iter().any(|entry| !matches!(entry.key, ScVal::Symbol(_))) {
        return Err(format!("'{target}' has a field whose name is no symbol"));
    }
    if !fits(&fields, limits.depth) {
        let most = limits.depth;
        return Err(format!("the fields of '{target}' are nested deeper than {most} levels"));
    }
    let bytes = fields.to_xdr(XdrLimits::none()).map_or(usize::MAX, |xdr| xdr.len());
    if run.emitted_bytes.get().saturating_add(bytes) > limits.emitted_bytes {
        let most = Bytes(limits.emitted_bytes);
        return Err(format!("the program emitted more than {most} in one run"));
    }
    Ok((fields, bytes))
}

/// Returns whether a map is nested at most `levels` deep.
fn fits(map: &ScMap, levels: usize) -> bool {
    fn value_fits(value: &ScVal, levels: usize) -> bool {
        match value {
            ScVal::Map(Some(map)) => fits(map, levels),
            ScVal::Vec(Some(vec)) => {
                levels > 0 && vec.iter().all(|item| value_fits(item, levels - 1))
            }
            _ => true,
        }
    }
    levels > 0
        && map
            .iter()
            .all(|entry| value_fits(&entry.key, levels - 1) && value_fits(&entry.val, levels - 1))
}

/// Returns the topics of events that represent emits.
fn topics(host: &Host, run: &Run) -> Result<VecObject, HostError> {
    if let Some(topics) = run.topics.get() {
        return Ok(topics);
    }
    let marker = host.bytes_new_from_slice(&run.marker)?;
    let topics = host.vec_new_from_slice(&[marker.to_val()])?;
    run.topics.set(Some(topics));
    Ok(topics)
}

/// Separates the events of a run into the emits that count and the contracts' own events.
pub(super) fn separate(
    events: Vec<HostEvent>,
    run: &Run,
) -> (Vec<Emit>, Vec<soroban_env_host::xdr::ContractEvent>) {
    let mut emitted: Vec<Option<_>> = run.emitted.borrow_mut().drain(..).map(Some).collect();
    let mut emits = Vec::new();
    let mut others = Vec::new();
    for event in events.into_iter().filter(|event| !event.failed_call) {
        let ContractEventBody::V0(body) = &event.event.body;
        let marked = matches!(
            body.topics.as_slice(), [ScVal::Bytes(bytes)] if bytes.as_slice() == run.marker
        );
        if !marked {
            others.push(event.event);
            continue;
        }
        let ScVal::U32(index) = body.data else { continue };
        let emit = emitted.get_mut(index as usize).and_then(Option::take);
        if let (Some((target, fields)), Some(contract)) = (emit, &event.event.contract_id) {
            emits.push(Emit { contract: ContractId(contract.0.0), target, fields });
        }
    }
    (emits, others)
}
