//! What a subscription's condition could not be asked of: events of contracts of which it is not known what
//! they declare, and events whose declaration gives a value another type.

use serde::{Deserialize, Serialize};

use super::judging::Verdict;
use super::rows::in_subscriptions;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{Mark, RowCodec, Table};

/// What the condition of each subscription could not be asked of.
pub const UNMET: Table<(Mark<b'u'>, u32), Unmet> = in_subscriptions();

/// Events that a condition could not be asked of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// Those of contracts of which it is not known what they declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unjudged: Option<Unjudged>,
    /// The first whose declaration gives a value a type that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<Misfit>,
}

/// Events that were not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unjudged {
    /// Their number.
    pub events: u64,
    /// Ledger of the first.
    pub first_ledger: u32,
}

/// A type that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfit {
    /// Ledger of the first event with it.
    pub first_ledger: u32,
    /// What does not fit.
    pub reason: String,
}

impl Unmet {
    /// Adds an event. Returns whether that changes anything.
    pub fn add(&mut self, ledger: LedgerSeq, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Matches | Verdict::Differs => false,
            Verdict::Unjudged => {
                let none = Unjudged { events: 0, first_ledger: ledger.0 };
                let unjudged = self.unjudged.get_or_insert(none);
                unjudged.events += 1;
                unjudged.first_ledger = unjudged.first_ledger.min(ledger.0);
                true
            }
            Verdict::Misfits(reason) => {
                let is_first = self.misfit.as_ref().is_none_or(|it| ledger.0 < it.first_ledger);
                if is_first {
                    let (first_ledger, reason) = (ledger.0, reason.clone());
                    self.misfit = Some(Misfit { first_ledger, reason });
                }
                is_first
            }
        }
    }
}

impl RowCodec for Unmet {
    fn write(&self, to: &mut Vec<u8>) {
        serde_json::to_writer(to, self).expect("numbers and texts serialize");
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        serde_json::from_slice(std::mem::take(bytes)).ok()
    }
}
