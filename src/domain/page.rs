//! Which part of a list is wanted.

/// Which way a list is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Newest row first, the default of every list.
    #[default]
    NewestFirst,
    /// Oldest row first.
    OldestFirst,
}

/// Which part of a list is wanted. `C` is the position that a cursor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<C> {
    /// Which way the list is walked.
    pub direction: Direction,
    /// Start after this position; a given cursor makes `offset` irrelevant.
    pub cursor: Option<C>,
    /// Rows to pass over from the start.
    pub offset: u64,
    /// Rows to return at the most.
    pub limit: usize,
}

impl<C> Page<C> {
    /// The first `limit` rows, newest first.
    pub fn first(limit: usize) -> Self {
        Self { direction: Direction::NewestFirst, cursor: None, offset: 0, limit }
    }

    /// Rows to pass over: none once a cursor is given.
    pub fn skip(&self) -> u64 {
        if self.cursor.is_some() { 0 } else { self.offset }
    }
}
