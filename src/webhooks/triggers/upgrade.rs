//! Contracts that get other code.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Sources;
use super::body::{self, Runs, Scene};
use crate::trigger::Trigger;
use orrery_executables::Upgrade;
use orrery_executables::lookup::Ran;
use orrery_executables::transaction::RecordError;
use orrery_interfaces::{Difference, Interface, asset_contract};
use orrery_ledger::domain::Hash32;

/// Maximum number of comparisons that are kept.
const MOST_KEPT: usize = 16;

/// Comparisons of interfaces, each made once.
#[derive(Default)]
pub(super) struct Differences(RefCell<HashMap<(Hash32, Hash32), Rc<Difference>>>);

impl Differences {
    fn between(&self, old: &Code, new: &Code) -> Rc<Difference> {
        let pair = (old.hash(), new.hash());
        if let Some(known) = self.0.borrow().get(&pair) {
            return Rc::clone(known);
        }
        let difference = Rc::new(Difference::between(old.interface(), new.interface()));
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(pair, Rc::clone(&difference));
        difference
    }
}

/// Code of which it is known what it declares.
enum Code {
    Asset,
    Module(Hash32, Arc<Interface>),
}

impl Code {
    fn of(ran: &Ran, sources: &Sources<'_>) -> Option<Self> {
        match ran {
            Ran::Asset => Some(Self::Asset),
            Ran::Code(hash) => Some(Self::Module(*hash, sources.names?.declared_by(hash)?)),
            Ran::Nothing | Ran::Unknown(_) => None,
        }
    }

    /// Returns the hash of the module; zeros for the contract of an asset.
    fn hash(&self) -> Hash32 {
        match self {
            Self::Asset => Hash32::default(),
            Self::Module(hash, _) => *hash,
        }
    }

    fn interface(&self) -> &Interface {
        match self {
            Self::Asset => asset_contract(),
            Self::Module(_, interface) => interface,
        }
    }
}

/// Returns the body about a change of a contract's code.
pub(super) fn body(
    sources: &Sources<'_>,
    trigger: &Trigger,
    scene: &Scene,
    upgrade: &Upgrade,
    differences: &Differences,
) -> Result<Vec<u8>, RecordError> {
    let lacked = || sources.names.map_or(0, |names| names.lacked());
    let before = lacked();
    let code = |ran: &Option<Ran>| ran.as_ref().and_then(|ran| Code::of(ran, sources));
    let both = code(&upgrade.old).zip(code(&upgrade.new));
    let difference = both.map(|(old, new)| differences.between(&old, &new));
    let members = body::Upgraded {
        old: upgrade.old.as_ref().and_then(runs),
        new: upgrade.new.as_ref().and_then(runs),
        interface: difference.as_deref(),
        names_pending: lacked() > before,
    };
    body::body(trigger, scene, members).map_err(no_json)
}

fn runs(ran: &Ran) -> Option<Runs> {
    match ran {
        Ran::Code(hash) => Some(Runs::Wasm(*hash)),
        Ran::Asset => Some(Runs::StellarAsset(true)),
        Ran::Nothing | Ran::Unknown(_) => None,
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn no_json(error: serde_json::Error) -> RecordError {
    RecordError::Damaged(format!("a stored value cannot be written as JSON: {error}"))
}
