//! A compiled module, linked and ready to be instantiated.

use std::collections::HashMap;
use std::sync::Arc;

use orrery_ledger::domain::Hash32;
use wasmtime::{ExternType, Instance, InstancePre, Linker, Store, ValType};

use super::guest::Guest;

/// A compiled module. Cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

pub(super) struct Inner {
    sha256: Hash32,
    pre: InstancePre<Guest>,
    functions: HashMap<String, Signature>,
}

/// Signature of an exported function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// The number of `i64` parameters; the result is one `i64`.
    Words(usize),
    /// Any other signature; contracts cannot call such a function.
    Other,
}

impl Module {
    pub(super) fn link(
        compiled: &wasmtime::Module,
        linker: &Linker<Guest>,
        sha256: Hash32,
    ) -> wasmtime::Result<Self> {
        let functions = compiled
            .exports()
            .filter_map(|export| match export.ty() {
                ExternType::Func(ty) => {
                    let words = ty.params().all(|param| matches!(param, ValType::I64))
                        && ty.results().len() == 1
                        && ty.results().all(|result| matches!(result, ValType::I64));
                    let parameters = ty.params().len();
                    let signature =
                        if words { Signature::Words(parameters) } else { Signature::Other };
                    Some((export.name().to_owned(), signature))
                }
                _ => None,
            })
            .collect();
        let pre = linker.instantiate_pre(compiled)?;
        Ok(Self(Arc::new(Inner { sha256, pre, functions })))
    }

    /// SHA-256 of the module's code, which is also its hash on the network.
    pub fn sha256(&self) -> Hash32 {
        self.0.sha256
    }

    pub(super) fn signature(&self, function: &str) -> Option<Signature> {
        self.0.functions.get(function).copied()
    }

    pub(super) fn compiled(&self) -> &wasmtime::Module {
        self.0.pre.module()
    }

    pub(super) fn engine(&self) -> &wasmtime::Engine {
        self.compiled().engine()
    }

    pub(super) fn instance(&self, store: &mut Store<Guest>) -> wasmtime::Result<Instance> {
        self.0.pre.instantiate(store)
    }

    pub(super) fn downgrade(&self) -> std::sync::Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(inner: &std::sync::Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(Self)
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({})", self.0.sha256)
    }
}
