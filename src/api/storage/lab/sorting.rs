//! Which entries a list has and how it is sorted: the parameters that all its pages share.

use orrery_contract_data::Order;
use orrery_ledger::domain::Direction;

/// The parameters that all pages of a list share.
pub(super) struct Sorting {
    pub direction: Direction,
    pub sort_by: SortBy,
    pub filter_key: Option<String>,
}

/// What entries are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortBy {
    Durability,
    KeyHash,
    Ttl,
    UpdatedAt,
}

impl SortBy {
    pub(super) const ALL: [Self; 4] = [Self::Durability, Self::KeyHash, Self::Ttl, Self::UpdatedAt];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Durability => "durability",
            Self::KeyHash => "key_hash",
            Self::Ttl => "ttl",
            Self::UpdatedAt => "updated_at",
        }
    }

    pub(super) fn order(self) -> Order {
        match self {
            Self::Durability => Order::Durability,
            Self::KeyHash => Order::KeyHash,
            Self::Ttl => Order::LiveUntil,
            Self::UpdatedAt => Order::Modified,
        }
    }

    /// Returns the value with a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Returns the name of a direction.
pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::OldestFirst => "asc",
        Direction::NewestFirst => "desc",
    }
}
