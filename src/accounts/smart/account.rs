//! What the index stores of a smart account as a whole: its events, totals, and how far the events
//! are folded.

use super::event::{Event, Kind, Variant};
use crate::{Position, value};
use orrery_store::RowCodec;

/// An event with the log row that is stored for it: its kind, its id, and its data as XDR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub(super) event: Event,
    pub(super) row: Vec<u8>,
}

impl Logged {
    pub(super) fn new(event: Event, data: &[u8]) -> Self {
        let mut row = (event.kind, event.id).encode();
        row.extend_from_slice(data);
        Self { event, row }
    }
}

impl RowCodec for Logged {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.row);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut data = std::mem::take(bytes);
        let row = data.to_vec();
        let (kind, id) = <(Kind, u32)>::read(&mut data)?;
        let event = Event::with(kind, id, &value::parse(data)?)?;
        Some(Self { event, row })
    }
}

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
    /// Returns the number of pairs with a signer of this variant, to be changed.
    pub fn pairs_of_mut(&mut self, variant: Variant) -> &mut u32 {
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
}

impl RowCodec for Stored {
    fn write(&self, to: &mut Vec<u8>) {
        let Self { first_seen, last_seen, pairs, rules, log_bytes, is_cut, progress, folded } =
            self;
        let flags = [u32::from(*is_cut), *progress as u32];
        let numbers = [*first_seen, *last_seen].into_iter().chain(*pairs);
        numbers.chain([*rules, *log_bytes]).chain(flags).for_each(|number| number.write(to));
        folded.unwrap_or(Position::NONE).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut number = || u32::read(bytes);
        Some(Self {
            first_seen: number()?,
            last_seen: number()?,
            pairs: [number()?, number()?, number()?],
            rules: number()?,
            log_bytes: number()?,
            is_cut: number()? != 0,
            progress: *Progress::ALL.get(usize::try_from(number()?).ok()?)?,
            folded: Position::read(bytes)?.known(),
        })
    }
}
