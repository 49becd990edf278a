//! Pagination: which part of a list is requested.

/// Order in which a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Newest row first, the default of every list.
    #[default]
    NewestFirst,
    /// Oldest row first.
    OldestFirst,
}

/// The requested part of a list. `C` is the position that a cursor identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<C> {
    /// Order in which the list is read.
    pub direction: Direction,
    /// Position after which the page starts; `offset` is ignored when it is given.
    pub cursor: Option<C>,
    /// Number of rows to skip from the start of the list.
    pub offset: u64,
    /// Maximum number of rows to return.
    pub limit: usize,
}

impl<C> Page<C> {
    /// Returns the page of the first `limit` rows, newest first.
    pub fn first(limit: usize) -> Self {
        Self { direction: Direction::NewestFirst, cursor: None, offset: 0, limit }
    }

    /// Returns the page of all rows, oldest first.
    pub fn all() -> Self {
        Self { direction: Direction::OldestFirst, ..Self::first(usize::MAX) }
    }

    /// Returns the number of rows to skip: 0 when a cursor is given.
    pub fn skip(&self) -> u64 {
        if self.cursor.is_some() { 0 } else { self.offset }
    }
}
