//! What governs calls of contracts on the state after a ledger, as far as the ledger says it: changes
//! of the network's settings, the size of the state, the base reserve. Values are slices.

use super::xdr::{
    self, Cursor, Depth, LedgerEntryChangeType, LedgerEntryType, Part, Visit, Xdr, XdrError,
};

/// What governs calls of contracts on the state after a ledger, as far as the ledger says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions<'a> {
    /// Settings that upgrades changed, each once, in the order of the metadata.
    pub settings: Vec<SettingChange<'a>>,
    /// Size of all live contract data and code, in bytes; `None` before protocol 20.
    pub state_size: Option<u64>,
    /// Unit of the minimum balance of accounts, in stroops.
    pub base_reserve: u32,
}

/// Change of a setting of the network by upgrades of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingChange<'a> {
    /// Number of the setting (`ConfigSettingID`).
    pub id: u32,
    /// The setting before.
    pub before: SettingBefore<'a>,
    /// XDR `LedgerEntry` of the setting after; `None` when it is gone.
    pub after: Option<&'a [u8]>,
}

/// A setting before it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingBefore<'a> {
    /// The metadata does not say.
    Unknown,
    /// There was none.
    Absent,
    /// XDR `LedgerEntry`.
    Entry(&'a [u8]),
}

/// Returns what a ledger says about the conditions after it.
///
/// # Errors
/// When `raw` is not an XDR `LedgerCloseMeta`.
pub fn ledger_conditions(raw: &[u8]) -> Result<Conditions<'_>, XdrError> {
    let (mut found, mut cursor) = (Conditions::default(), Cursor::new(raw));
    xdr::LedgerCloseMeta::walk(&mut cursor, Depth::LIMIT, &mut found)?;
    cursor.finish().map(|()| found)
}

impl<'a> Visit<'a> for Conditions<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        match part {
            Part::BaseReserve => self.base_reserve = Cursor::new(xdr).u32()?,
            Part::StateSize => self.state_size = Some(Cursor::new(xdr).u64()?),
            // Walked a second time: other lists of changes, which come with every transaction, cost
            // nothing here.
            Part::UpgradeChanges => {
                let settings = &mut Settings(&mut self.settings);
                xdr::LedgerEntryChanges::walk(&mut Cursor::new(xdr), Depth::LIMIT, settings)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Collects changes of settings from lists of changes.
struct Settings<'s, 'a>(&'s mut Vec<SettingChange<'a>>);

impl<'a> Visit<'a> for Settings<'_, 'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        if part == Part::Change {
            self.add(xdr)?;
        }
        Ok(())
    }
}

impl<'a> Settings<'_, 'a> {
    /// Adds an XDR `LedgerEntryChange`, unless it is of another entry.
    fn add(&mut self, change: &'a [u8]) -> Result<(), XdrError> {
        use LedgerEntryChangeType as Type;

        let mut cursor = Cursor::new(change);
        let kind = cursor.i32()?;
        let after = Some(cursor.rest()).filter(|_| kind != Type::REMOVED);
        if after.is_some() {
            // `lastModifiedLedgerSeq`, which keys lack.
            cursor.u32()?;
        }
        if cursor.i32()? != LedgerEntryType::CONFIG_SETTING {
            return Ok(());
        }
        let id = cursor.u32()?;
        if let Some(known) = self.0.iter_mut().find(|known| known.id == id) {
            known.after = after;
            return Ok(());
        }
        let before = match (kind, after) {
            (Type::CREATED, _) => SettingBefore::Absent,
            (Type::STATE, Some(entry)) => SettingBefore::Entry(entry),
            _ => SettingBefore::Unknown,
        };
        self.0.push(SettingChange { id, before, after });
        Ok(())
    }
}
