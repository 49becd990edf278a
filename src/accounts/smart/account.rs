//! What the index stores of a smart account as a whole: totals, and how far its events are folded.

use super::event::Variant;
use crate::accounts::Position;
use crate::accounts::rows::{numbers, put_numbers};

/// Stored properties of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stored {
    /// Ledger of its first event.
    pub first_seen: u32,
    /// Ledger of its last event.
    pub last_seen: u32,
    /// Number of (rule, signer) pairs, by [`Variant`].
    pub pairs: [u32; 3],
    /// Number of its rules.
    pub rules: u32,
    /// Size of the log rows that were folded, in bytes.
    pub log_bytes: u32,
    /// Whether something did not count because of a limit of the index.
    pub is_cut: bool,
    /// Whether all events are folded.
    pub progress: Progress,
    /// Position of the last event that was folded.
    pub folded: Option<Position>,
}

/// How far the events of an account are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Progress {
    /// All of them are, and the next one is folded as it arrives.
    #[default]
    Current,
    /// An event that lies before a folded one arrived: the state is deleted, row by row.
    Clearing,
    /// The state is computed again from the log.
    Refolding,
}

impl Progress {
    const ALL: [Self; 3] = [Self::Current, Self::Clearing, Self::Refolding];
}

impl Stored {
    /// Number of pairs with a signer of this variant.
    pub fn pairs_of(&mut self, variant: Variant) -> &mut u32 {
        let [delegated, external, native] = &mut self.pairs;
        match variant {
            Variant::Delegated => delegated,
            Variant::External => external,
            Variant::Native => native,
        }
    }

    /// Records that there is an event of this ledger.
    pub fn see(&mut self, ledger: u32) {
        self.first_seen = if self.first_seen == 0 { ledger } else { self.first_seen.min(ledger) };
        self.last_seen = self.last_seen.max(ledger);
    }

    /// Forgets what was folded. Its rows are deleted later.
    pub fn begin_again(&mut self) {
        let Self { first_seen, last_seen, .. } = *self;
        *self = Self { first_seen, last_seen, progress: Progress::Clearing, ..Self::default() };
    }

    pub fn encode(&self) -> Vec<u8> {
        let Self { first_seen, last_seen, pairs, rules, log_bytes, is_cut, progress, folded } =
            self;
        // All zeros stand for `None`: no event has ledger sequence 0.
        let folded = folded.map_or([0; 3], |at| [at.ledger, at.application_order, at.event_index]);
        let flags = [u32::from(*is_cut), *progress as u32];
        let seen = [*first_seen, *last_seen];
        put_numbers(
            seen.into_iter().chain(*pairs).chain([*rules, *log_bytes]).chain(flags).chain(folded),
        )
    }

    pub fn decode(row: &[u8]) -> Option<Self> {
        let [
            first_seen,
            last_seen,
            delegated,
            external,
            native,
            rules,
            log_bytes,
            is_cut,
            progress,
            ledger,
            application_order,
            event_index,
        ] = numbers(row)?[..]
        else {
            return None;
        };
        let folded = Position { ledger, application_order, event_index };
        Some(Self {
            first_seen,
            last_seen,
            pairs: [delegated, external, native],
            rules,
            log_bytes,
            is_cut: is_cut != 0,
            progress: *Progress::ALL.get(usize::try_from(progress).ok()?)?,
            folded: Some(folded).filter(|at| at.ledger > 0),
        })
    }
}
