//! Paging parameters `limit`, `offset`, `cursor` and `order`, which lists have in common.

use super::ApiError;
use super::params::Query;
use super::stored::DECODED;
use orrery_ledger::domain::{Direction, Page};

/// Parameters of a list within a range of ledgers.
pub(super) const IN_LEDGERS: [&str; 7] =
    ["limit", "offset", "cursor", "order", "from", "to", DECODED];
/// Parameters of a list for several contracts.
pub(super) const OF_CONTRACTS: [&str; 6] =
    ["limit", "offset", "cursor", "order", "contracts", DECODED];
/// Parameters of a list for several contracts within a range of ledgers.
pub(super) const OF_CONTRACTS_IN_LEDGERS: [&str; 8] =
    ["limit", "offset", "cursor", "order", "from", "to", "contracts", DECODED];

const DEFAULT_LIMIT: usize = 100;
const LARGEST_LIMIT: usize = 1000;

/// Parses the page that a query requests, with an offset of at most `most_offset`; `cursor` parses
/// the position that a cursor names.
pub(super) fn page<C>(
    query: &Query<'_>,
    most_offset: u64,
    cursor: impl FnOnce(&Query<'_>) -> Result<Option<C>, ApiError>,
) -> Result<Page<C>, ApiError> {
    let offset = query.number("offset", u64::MAX)?.unwrap_or(0);
    if offset > most_offset {
        let problem = format!(
            "is {offset}: give {most_offset} at the most, and continue from the last row of a page with 'cursor'"
        );
        return Err(ApiError::parameter("offset", problem));
    }
    let order = [("asc", Direction::OldestFirst), ("desc", Direction::NewestFirst)];
    Ok(Page {
        direction: query.word("order", &order)?.unwrap_or_default(),
        cursor: cursor(query)?,
        offset,
        limit: limit(query)?,
    })
}

/// Parses `limit`: 100 by default, 1000 at the most.
pub(super) fn limit(query: &Query<'_>) -> Result<usize, ApiError> {
    let Some(given) = query.number("limit", LARGEST_LIMIT as u64)? else {
        return Ok(DEFAULT_LIMIT);
    };
    match usize::try_from(given) {
        Ok(0) => Err(ApiError::parameter("limit", "is 0: give a number from 1 to 1000")),
        Ok(limit) => Ok(limit),
        Err(_) => Ok(LARGEST_LIMIT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::Parameters;
    use super::*;
    use orrery_settings::UnknownParameters;

    fn parse(raw: &str) -> Result<Page<u64>, String> {
        let known = Parameters::Known(&IN_LEDGERS);
        let query = Query::parse(raw, known, UnknownParameters::Refuse)
            .map_err(|error| error.to_string())?;
        page(&query, u64::MAX, |query| query.number("cursor", u64::MAX))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_page_is_the_newest_100_rows() {
        let expected =
            Page { direction: Direction::NewestFirst, cursor: None, offset: 0, limit: 100 };
        assert_eq!(parse("").unwrap(), expected);
        assert_eq!(parse("order=desc&limit=100&offset=0").unwrap(), expected);
    }

    #[test]
    fn limit_is_clamped_and_never_zero() {
        for (text, limit) in [("1", 1), ("999", 999), ("1000", 1000), ("1001", 1000)] {
            assert_eq!(parse(&format!("limit={text}")).unwrap().limit, limit);
        }
        assert_eq!(parse(&format!("limit={}", "9".repeat(99))).unwrap().limit, 1000);
        for text in ["0", "00", "-1", "", "ten"] {
            assert!(parse(&format!("limit={text}")).unwrap_err().contains("'limit'"), "{text}");
        }
    }

    #[test]
    fn an_offset_beside_a_cursor_is_validated_but_ignored() {
        let page = parse("cursor=7&offset=9&order=asc").unwrap();
        assert_eq!((page.cursor, page.skip()), (Some(7), 0));
        assert_eq!(page.direction, Direction::OldestFirst);
        assert!(parse("cursor=7&offset=x").unwrap_err().contains("'offset'"));
        assert!(parse("cursor=&offset=1").unwrap_err().contains("'cursor'"));
        assert!(parse("order=ASC").unwrap_err().contains("'order'"));
    }
}
