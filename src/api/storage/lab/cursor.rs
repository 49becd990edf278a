//! Cursors in the form of the Lab's backend: base64 of a JSON object with the entry at the edge of a page
//! and the parameters of the list.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use super::super::super::ApiError;
use super::sorting::{SortBy, Sorting, direction_name};
use orrery_contract_data::{Durability, KeyTag, Place};
use orrery_ledger::domain::{Hash32, excerpt};

/// Name of the parameter.
pub(super) const NAME: &str = "cursor";

/// Place of an entry of which it is not known what it is ordered by.
const UNKNOWN: u64 = u64::MAX;
/// Longest cursor that is read, in characters: a filter has 32, and its JSON may have six for each.
const LONGEST: usize = 2_048;

/// Reads base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The edge of a page, and the page that follows from it.
#[derive(Debug)]
pub(super) struct Cursor {
    written: Written,
    place: Place,
}

/// Which page follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Next,
    Prev,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    cursor_type: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_direction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_key: Option<String>,
    position: Position,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Position {
    key_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_value: Option<SortValue>,
}

/// What the entry is ordered by: a ledger, or the name of the durability.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum SortValue {
    Ledger(u64),
    Durability(String),
}

impl Cursor {
    /// Returns the cursor for the page that follows from an entry of a list.
    pub(super) fn at(kind: Kind, sorting: &Sorting, key_hash: &Hash32, place: Place) -> Self {
        let sort_by = sorting.sort_by;
        let sort_value = match sort_by {
            SortBy::KeyHash => None,
            SortBy::Durability => {
                let of = [Durability::Persistent, Durability::Temporary];
                let of = of.into_iter().nth(usize::from(place.by > 0));
                of.map(|it| SortValue::Durability(it.name().to_owned()))
            }
            SortBy::Ttl | SortBy::UpdatedAt => {
                Some(place.by).filter(|by| *by != UNKNOWN).map(SortValue::Ledger)
            }
        };
        let sort_field = (sort_by != SortBy::KeyHash).then(|| sort_by.name().to_owned());
        let written = Written {
            cursor_type: kind,
            sort_field,
            sort_direction: Some(direction_name(sorting.direction).to_owned()),
            filter_key: sorting.filter_key.clone(),
            position: Position { key_hash: key_hash.to_string(), sort_value },
        };
        Self { written, place }
    }

    /// Reads a cursor, which must be of a list with these parameters.
    pub(super) fn read(text: &str, sorting: &Sorting) -> Result<Self, ApiError> {
        let malformed =
            || ApiError::parameter(NAME, format!("is '{}': give that of a link", excerpt(text)));
        if text.len() > LONGEST {
            return Err(malformed());
        }
        // A `+` that was not percent-encoded is a space.
        let decoded = BASE64.decode(text.replace(' ', "+")).map_err(|_| malformed())?;
        let written: Written = serde_json::from_slice(&decoded).map_err(|_| malformed())?;
        let Written { sort_field, sort_direction, filter_key, position, .. } = &written;
        let sort_by = sort_field.as_deref().unwrap_or(SortBy::KeyHash.name());
        let sort_by = SortBy::of(sort_by).ok_or_else(malformed)?;
        let is_other = |name: &str| {
            let problem =
                format!("is of a list with another '{name}': give all parameters as they were");
            Err(ApiError::parameter(NAME, problem))
        };
        if sort_by != sorting.sort_by {
            return is_other("sort_by");
        }
        if sort_direction.as_deref().is_some_and(|it| it != direction_name(sorting.direction)) {
            return is_other("order");
        }
        if *filter_key != sorting.filter_key {
            return is_other("filter_key");
        }
        let place = position.place(sort_by).ok_or_else(malformed)?;
        Ok(Self { written, place })
    }

    /// Returns which page follows.
    pub(super) fn kind(&self) -> Kind {
        self.written.cursor_type
    }

    /// Returns the place of the entry.
    pub(super) fn place(&self) -> Place {
        self.place
    }
}

impl Position {
    /// Returns the place in a list in this order; `None` when it is none.
    fn place(&self, sort_by: SortBy) -> Option<Place> {
        let key_hash: Hash32 = self.key_hash.parse().ok()?;
        let by = match (sort_by, &self.sort_value) {
            (SortBy::KeyHash, None) => 0,
            (SortBy::Durability, Some(SortValue::Durability(name))) => {
                let of = [Durability::Persistent, Durability::Temporary];
                of.iter().position(|it| it.name() == name)? as u64
            }
            (SortBy::Ttl | SortBy::UpdatedAt, Some(SortValue::Ledger(ledger))) => *ledger,
            (SortBy::Ttl | SortBy::UpdatedAt, None) => UNKNOWN,
            _ => return None,
        };
        Some(Place { by, tag: KeyTag::of(&key_hash) })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(&self.written).map_err(|_| fmt::Error)?;
        f.write_str(&STANDARD.encode(json))
    }
}
