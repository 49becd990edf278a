//! The rows of tables for changes of contract data in the row log.

use std::sync::Arc;

use serde_json::value::RawValue;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::data_log::LoggedChange;
use super::declared_by::DeclaredBy;
use super::interfaces::{EventInterfaces, OfProject};
use super::known::KnownInterface;
use crate::ProgramError;
use orrery_interfaces::{PlainData, data_name, undecodable};
use orrery_ledger::domain::{DEEPEST_VALUE, text};
use orrery_tables::event_tables::StorageChange;

/// Limits for decoding a stored value: its depth, and 16 MiB.
const LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 16 << 20 };

/// Makes the rows of changes, of which many in a row are written by the same interfaces.
#[derive(Default)]
pub(super) struct DataRows {
    last: Vec<DeclaredBy>,
    known: Vec<Arc<KnownInterface>>,
}

impl DataRows {
    /// Returns the row of a change by the transaction with this application order.
    pub fn row(
        &mut self,
        interfaces: &EventInterfaces,
        of: &OfProject<'_>,
        order: u32,
        change: &LoggedChange<'_>,
    ) -> Result<StorageChange<'static>, ProgramError> {
        if self.last != change.interfaces {
            let known =
                change.interfaces.iter().filter_map(|by| interfaces.get(*by, of).transpose());
            self.known = known.collect::<Result<_, _>>()?;
            self.last.clone_from(&change.interfaces);
        }
        let each = self.known.iter();
        let data = PlainData(each.map(|it| (it.interface().types(), it.storage_keys())).collect());
        let key = change.key.map(|xdr| (xdr, ScVal::from_xdr(xdr, LIMITS).ok()));
        let value = change.value.map(|xdr| (xdr, ScVal::from_xdr(xdr, LIMITS).ok()));
        let value = match (&key, value) {
            (Some((_, Some(key))), Some((_, Some(value)))) => Some(data.value(key, &value)),
            (_, value) => value.map(|(xdr, _)| undecodable(xdr)),
        };
        let (args, name, key) = match &key {
            Some((_, Some(key))) => {
                let name = data_name(key).map(|(name, _)| text(name));
                (data.args(key).map_err(unwritten)?, name, Some(data.key(key)))
            }
            Some((xdr, None)) => (None, None, Some(undecodable(xdr))),
            None => (None, None, None),
        };
        let args = args.map(|args| serde_json::to_string(&args)).transpose().map_err(unwritten)?;
        let written = |json: Option<Result<Box<RawValue>, serde_json::Error>>| {
            let json = json.transpose().map_err(unwritten)?;
            Ok::<_, ProgramError>(json.map(|json| json.get().to_owned()))
        };
        Ok(StorageChange {
            contract: change.contract,
            order,
            key_name: name,
            key_args: args,
            key: written(key)?,
            value: written(value)?,
            change: change.kind.name(),
            durability: change.durability.name(),
            live_until: change.live_until,
            key_hash: change.key_hash,
        })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(error: serde_json::Error) -> ProgramError {
    tracing::error!("a value of contract data cannot be written as JSON: {error}");
    ProgramError::Damaged("a change of contract data")
}
