//! The functions of the environment interface that read or write the guest's linear memory.
//! Positions and lengths come from the guest and are checked before anything is read, written or
//! allocated. Allocations are charged to the host's budget first, as in the network's interpreter.

use std::ops::Range;

use soroban_env_host::xdr::{ContractCostType, ScErrorCode, ScErrorType};
use soroban_env_host::{
    BytesObject, CheckedEnvArg, Env, EnvBase, Error, Host, HostError, MapObject, StringObject,
    Symbol, SymbolObject, U32Val, Val, VecObject, Void,
};
use wasmtime::{Caller, Linker};

use super::guest::{Guest, memory_call};
use super::word::{Objects, Word};

const OUT_OF_BOUNDS: Error =
    Error::from_type_and_code(ScErrorType::WasmVm, ScErrorCode::IndexBounds);
const OVERFLOW: Error = Error::from_type_and_code(ScErrorType::Value, ScErrorCode::ArithDomain);
const WRONG_SIZE: Error =
    Error::from_type_and_code(ScErrorType::Object, ScErrorCode::UnexpectedSize);
const NOT_A_SYMBOL: Error =
    Error::from_type_and_code(ScErrorType::Value, ScErrorCode::InvalidInput);

/// Size in bytes of a `Val` in memory, and of a slice (position and length).
const ITEM: u32 = 8;

type Result<T> = std::result::Result<T, HostError>;

/// Returns the byte range of `len` items of `size` bytes at `pos`, if it lies within the memory.
fn range(memory: &[u8], pos: u32, len: u32, size: u32) -> Result<Range<usize>> {
    let bytes = len.checked_mul(size).ok_or(OVERFLOW)?;
    let end = pos.checked_add(bytes).ok_or(OVERFLOW)?;
    let range = pos as usize..end as usize;
    if range.end <= memory.len() { Ok(range) } else { Err(OUT_OF_BOUNDS.into()) }
}

fn charge(host: &Host, len: u32, size: u32) -> Result<()> {
    let bytes = Some(u64::from(len) * u64::from(size));
    host.charge_budget(ContractCostType::MemAlloc, bytes)?;
    host.charge_budget(ContractCostType::MemCpy, bytes)
}

/// Reads `len` values of the guest at `pos`.
fn read_vals(
    host: &Host,
    memory: &[u8],
    objects: &Objects,
    pos: u32,
    len: u32,
) -> Result<Vec<Val>> {
    charge(host, len, ITEM)?;
    let (words, _) = memory[range(memory, pos, len, ITEM)?].as_chunks::<{ ITEM as usize }>();
    words.iter().map(|word| objects.read(i64::from_le_bytes(*word))).collect()
}

/// Converts host values to guest values and writes them at `pos`.
fn write_vals(
    host: &Host,
    memory: &mut [u8],
    objects: &mut Objects,
    pos: u32,
    vals: &[Val],
) -> Result<()> {
    let len = u32::try_from(vals.len()).map_err(|_| OVERFLOW)?;
    let range = range(memory, pos, len, ITEM)?;
    host.charge_budget(ContractCostType::MemCpy, Some(u64::from(len) * u64::from(ITEM)))?;
    let (words, _) = memory[range].as_chunks_mut::<{ ITEM as usize }>();
    for (word, val) in words.iter_mut().zip(vals) {
        *word = objects.write(*val, host)?.to_le_bytes();
    }
    Ok(())
}

/// Returns the slices whose positions and lengths are stored at `pos`.
fn read_slices<'m>(host: &Host, memory: &'m [u8], pos: u32, len: u32) -> Result<Vec<&'m [u8]>> {
    host.charge_budget(ContractCostType::MemCpy, Some(u64::from(len) * u64::from(ITEM)))?;
    // As in the interpreter, `pos` is not checked when there are no slices.
    let pos = if len == 0 { 0 } else { pos };
    let (words, _) = memory[range(memory, pos, len, ITEM)?].as_chunks::<{ ITEM as usize }>();
    words
        .iter()
        .map(|word| {
            let word = u64::from_le_bytes(*word);
            let (pos, len) = (word & u64::from(u32::MAX), word >> 32);
            Ok(&memory[range(memory, pos as u32, len as u32, 1)?])
        })
        .collect()
}

fn read_names<'m>(host: &Host, memory: &'m [u8], pos: u32, len: u32) -> Result<Vec<&'m str>> {
    host.charge_budget(ContractCostType::MemAlloc, Some(u64::from(len) * u64::from(ITEM)))?;
    read_slices(host, memory, pos, len)?
        .into_iter()
        .map(|bytes| str::from_utf8(bytes).map_err(|_| NOT_A_SYMBOL.into()))
        .collect()
}

/// Copies part of a bytes, string or symbol object into the guest's memory.
fn copy_out<O: CheckedEnvArg>(
    host: &Host,
    memory: &mut [u8],
    object: O,
    (pos, len): (U32Val, U32Val),
    copy: impl FnOnce(O, &mut [u8]) -> Result<()>,
) -> Result<Void> {
    let object = object.check_env_arg(host)?;
    let range = range(memory, pos.into(), len.into(), 1)?;
    copy(object, &mut memory[range])?;
    Ok(Val::VOID)
}

/// Charges the budget for `len` bytes and returns those at `pos`, from which the caller makes an
/// object.
fn bytes_at<'m>(host: &Host, memory: &'m [u8], pos: U32Val, len: U32Val) -> Result<&'m [u8]> {
    charge(host, len.into(), 1)?;
    Ok(&memory[range(memory, pos.into(), len.into(), 1)?])
}

/// Defines functions that access the guest's memory. The bodies receive arguments that are already
/// converted to their types.
macro_rules! define {
    ($linker:ident; $(
        $module:literal $import:literal $name:ident
        ($host:ident, $memory:ident, $objects:ident; $($arg:ident: $type:ty),*) $body:block
    )*) => {$(
        $linker.func_wrap(
            $module,
            $import,
            |mut caller: Caller<'_, Guest>, $($arg: i64),*| -> wasmtime::Result<i64> {
                memory_call(&mut caller, stringify!($name), |$host, $memory, $objects| {
                    $(let $arg = <$type as Word>::from_word($arg, $objects)?;)*
                    $body
                })
            },
        )?;
    )*};
}

/// Defines the functions that read or write memory, replacing the definitions made by `interface`.
pub(super) fn define(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    define_log_and_bytes(linker)?;
    define_strings(linker)?;
    define_vecs(linker)?;
    define_maps(linker)
}

fn define_log_and_bytes(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    define! { linker;
        // Nobody reads a log of a run, and a contract cannot tell whether somebody does.
        "x" "_" log_from_linear_memory(_host, _memory, objects;
            _msg_pos: U32Val, _msg_len: U32Val, _vals_pos: U32Val, _vals_len: U32Val) {
            Ok(Val::VOID)
        }
        "b" "1" bytes_copy_to_linear_memory(host, memory, objects;
            bytes: BytesObject, from: U32Val, pos: U32Val, len: U32Val) {
            copy_out(host, memory, bytes, (pos, len), |bytes, to| {
                host.bytes_copy_to_slice(bytes, from, to)
            })
        }
        "b" "2" bytes_copy_from_linear_memory(host, memory, objects;
            bytes: BytesObject, to: U32Val, pos: U32Val, len: U32Val) {
            let bytes = bytes.check_env_arg(host)?;
            u32::from(to).checked_add(len.into()).ok_or(OVERFLOW)?;
            host.bytes_copy_from_slice(bytes, to, bytes_at(host, memory, pos, len)?)
        }
        "b" "3" bytes_new_from_linear_memory(host, memory, objects; pos: U32Val, len: U32Val) {
            host.bytes_new_from_slice(bytes_at(host, memory, pos, len)?)
        }
    }
    Ok(())
}

fn define_strings(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    define! { linker;
        "b" "g" string_copy_to_linear_memory(host, memory, objects;
            string: StringObject, from: U32Val, pos: U32Val, len: U32Val) {
            copy_out(host, memory, string, (pos, len), |string, to| {
                host.string_copy_to_slice(string, from, to)
            })
        }
        "b" "h" symbol_copy_to_linear_memory(host, memory, objects;
            symbol: SymbolObject, from: U32Val, pos: U32Val, len: U32Val) {
            copy_out(host, memory, symbol, (pos, len), |symbol, to| {
                host.symbol_copy_to_slice(symbol, from, to)
            })
        }
        "b" "i" string_new_from_linear_memory(host, memory, objects; pos: U32Val, len: U32Val) {
            host.string_new_from_slice(bytes_at(host, memory, pos, len)?)
        }
        "b" "j" symbol_new_from_linear_memory(host, memory, objects; pos: U32Val, len: U32Val) {
            host.symbol_new_from_slice(bytes_at(host, memory, pos, len)?)
        }
        "b" "m" symbol_index_in_linear_memory(host, memory, objects;
            symbol: Symbol, pos: U32Val, len: U32Val) {
            let symbol = symbol.check_env_arg(host)?;
            let names: Vec<&str> = read_slices(host, memory, pos.into(), len.into())?
                .into_iter()
                // What is no text equals no symbol, and a symbol never holds this character.
                .map(|bytes| str::from_utf8(bytes).unwrap_or("\0"))
                .collect();
            host.symbol_index_in_strs(symbol, &names)
        }
    }
    Ok(())
}

fn define_vecs(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    define! { linker;
        "v" "g" vec_new_from_linear_memory(host, memory, objects; pos: U32Val, len: U32Val) {
            host.vec_new_from_slice(&read_vals(host, memory, objects, pos.into(), len.into())?)
        }
        "v" "h" vec_unpack_to_linear_memory(host, memory, objects;
            vec: VecObject, pos: U32Val, len: U32Val) {
            let count: u32 = host.vec_len(vec)?.into();
            if count != u32::from(len) {
                return Err(WRONG_SIZE.into());
            }
            range(memory, pos.into(), count, ITEM)?;
            let mut vals = vec![Val::VOID.to_val(); count as usize];
            host.vec_unpack_to_slice(vec, &mut vals)?;
            write_vals(host, memory, objects, pos.into(), &vals)?;
            Ok(Val::VOID)
        }
    }
    Ok(())
}

fn define_maps(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    define! { linker;
        "m" "9" map_new_from_linear_memory(host, memory, objects;
            keys: U32Val, vals: U32Val, len: U32Val) {
            let names = read_names(host, memory, keys.into(), len.into())?;
            let vals = read_vals(host, memory, objects, vals.into(), len.into())?;
            host.map_new_from_slices(&names, &vals)
        }
        "m" "a" map_unpack_to_linear_memory(host, memory, objects;
            map: MapObject, keys: U32Val, vals: U32Val, len: U32Val) {
            charge(host, len.into(), ITEM)?;
            let count: u32 = host.map_len(map)?.into();
            if count != u32::from(len) {
                return Err(WRONG_SIZE.into());
            }
            unpack_map(host, memory, objects, (keys.into(), vals.into(), count), |names, vals| {
                host.map_unpack_to_slice(map, names, vals)
            })
        }
        "m" "b" sparse_map_new_from_linear_memory(host, memory, objects;
            keys: U32Val, vals: U32Val, len: U32Val) {
            let names = read_names(host, memory, keys.into(), len.into())?;
            let vals = read_vals(host, memory, objects, vals.into(), len.into())?;
            host.sparse_map_new_from_slices(&names, &vals)
        }
        "m" "c" sparse_map_unpack_to_linear_memory(host, memory, objects;
            map: MapObject, keys: U32Val, vals: U32Val, len: U32Val) {
            charge(host, len.into(), ITEM)?;
            let map = map.check_env_arg(host)?;
            let at = (keys.into(), vals.into(), len.into());
            unpack_map(host, memory, objects, at, |names, vals| {
                host.sparse_map_unpack_to_slice(map, names, vals)
            })
        }
    }
    Ok(())
}

fn unpack_map(
    host: &Host,
    memory: &mut [u8],
    objects: &mut Objects,
    (keys, vals, len): (u32, u32, u32),
    unpack: impl FnOnce(&[&str], &mut [Val]) -> Result<Void>,
) -> Result<Void> {
    range(memory, vals, len, ITEM)?;
    let names = read_names(host, memory, keys, len)?;
    let mut unpacked = vec![Val::VOID.to_val(); len as usize];
    unpack(&names, &mut unpacked)?;
    write_vals(host, memory, objects, vals, &unpacked)?;
    Ok(Val::VOID)
}
