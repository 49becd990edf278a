//! The environment interface (CAP-46, `env.json` of the host): every function with its import
//! names, and the wrapper through which a program calls those that do not access the guest's
//! memory.

use soroban_env_host::{
    AddressObject, Bool, BytesObject, ContractTtlExtension, DurationObject, Env, Error,
    ExecutableTagObject, Host, I64Object, I128Object, I256Object, I256Val, MapObject,
    MuxedAddressObject, StorageType, StringObject, Symbol, SymbolObject, TimepointObject, U32Val,
    U64Object, U64Val, U128Object, U256Object, U256Val, Val, VecObject, Void,
    call_macro_with_all_host_functions, meta,
};
use wasmtime::{Caller, Linker};

use super::guest::{Guest, host_call};
use super::word::Word;

/// Protocol version of the host. It is also passed to the host as the ledger's protocol, because
/// the host accepts no other.
pub(super) const PROTOCOL: u32 = meta::INTERFACE_VERSION.protocol;

/// Import module and name of the function `(target, fields) -> void` that emits a row.
pub const EMIT: (&str, &str) = ("x", "9");

/// One function of the environment interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvFunction {
    /// Module of the import.
    pub module: &'static str,
    /// Name of the import.
    pub import: &'static str,
    /// Name of the function in the interface, such as `put_contract_data`.
    pub name: &'static str,
    /// Number of parameters. Each is an `i64`, as is the result.
    pub parameters: usize,
    /// Whether contracts of the host's protocol may import it.
    pub available: bool,
}

fn available(least: Option<u32>, most: Option<u32>) -> bool {
    least.is_none_or(|least| least <= PROTOCOL) && most.is_none_or(|most| PROTOCOL <= most)
}

/// Expands to `Some(version)`, or to `None` without an argument.
macro_rules! protocol {
    () => {
        None
    };
    ($version:literal) => {
        Some($version)
    };
}

macro_rules! interface {
    {$(
        $(#[$_a:meta])*
        mod $_module:ident $module:literal {$(
            $(#[$_b:meta])*
            { $import:literal, $($least:literal)?, $($most:literal)?,
              fn $name:ident ($($arg:ident: $type:ty),*) -> $ret:ty }
        )*}
    )*} => {
        /// All functions of the interface, in its order.
        pub fn env_functions() -> Vec<EnvFunction> {
            vec![$($(
                EnvFunction {
                    module: $module,
                    import: $import,
                    name: stringify!($name),
                    parameters: <[&str]>::len(&[$(stringify!($arg)),*]),
                    available: available(protocol!($($least)?), protocol!($($most)?)),
                },
            )*)*]
        }

        /// Defines them all over the host's own functions. Those that take memory of the guest
        /// fail in this form, and are defined once more by `guest_memory`.
        pub(super) fn define(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
            $($(
                linker.func_wrap(
                    $module,
                    $import,
                    |mut caller: Caller<'_, Guest>, $($arg: i64),*| -> wasmtime::Result<i64> {
                        host_call(&mut caller, stringify!($name), |host, _objects| {
                            $(let $arg = <$type as Word>::from_word($arg, _objects)?;)*
                            let result: $ret = <Host as Env>::$name(host, $($arg),*)?;
                            Ok(result)
                        })
                    },
                )?;
            )*)*
            Ok(())
        }
    };
}

call_macro_with_all_host_functions! { interface }

/// Redefines `get_ledger_version` to return the protocol of the ledger instead of the host's.
pub(super) fn define_protocol(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap("x", "2", |mut caller: Caller<'_, Guest>| -> wasmtime::Result<i64> {
        let protocol = caller.data().run.protocol;
        host_call(&mut caller, "get_ledger_version", |_, _| Ok(U32Val::from(protocol)))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_has_all_host_functions_and_a_free_name_for_emit() {
        let all = env_functions();
        assert!(all.len() >= 202, "{}", all.len());
        assert!(all.iter().all(|one| (one.module, one.import) != EMIT));
        let put = all.iter().find(|one| one.name == "put_contract_data").unwrap();
        assert_eq!((put.module, put.import, put.parameters, put.available), ("l", "_", 3, true));
        let gated: Vec<_> = all.iter().filter(|one| !one.available).map(|one| one.name).collect();
        assert_eq!(gated, ["protocol_gated_dummy"]);
    }
}
