//! All pages of a list, up to a number of rows.

use serde_json::Value;

use super::super::Failure;
use super::super::remote::{Body, Remote, with_query};

/// Maximum number of rows of one page.
const LARGEST_PAGE: usize = 1000;
/// Maximum number of pages: where a filter selects little of much, they have few rows.
const MOST_PAGES: usize = 200;

/// How lists are read.
pub struct Pages<'r> {
    pub remote: &'r Remote,
    /// Maximum number of rows.
    pub limit: usize,
    /// Where the list begins.
    pub cursor: Option<String>,
}

/// A list, or the part of it that was read.
pub struct Found {
    /// The first page, with the rows of all.
    pub body: Body,
    /// Number of rows.
    pub rows: usize,
    /// Where the list goes on; `None` at its end.
    pub cursor: Option<String>,
}

impl Pages<'_> {
    /// Reads a list with plain values, whose member `rows` has the rows.
    pub fn read(
        &self,
        path: &str,
        parameters: &[(&str, Option<String>)],
        rows: &str,
    ) -> Result<Found, Failure> {
        let mut cursor = self.cursor.clone();
        let mut whole: Option<(Body, Value)> = None;
        for page in 1.. {
            let read = whole.as_ref().map_or(0, |(_, whole)| count(whole, rows));
            let limit = (self.limit - read).min(LARGEST_PAGE);
            let more = [
                ("decoded", Some("true".to_owned())),
                ("limit", Some(limit.to_string())),
                ("cursor", cursor),
            ];
            let body = self.remote.get(&with_query(path, &[parameters, &more].concat()))?;
            let answer = body.json()?;
            cursor = answer["cursor"].as_str().map(str::to_owned);
            whole = Some(match whole {
                None => (body, answer),
                Some((_, whole)) => {
                    let whole = joined(whole, answer, rows);
                    (Body(whole.to_string().into_bytes()), whole)
                }
            });
            let read = whole.as_ref().map_or(0, |(_, whole)| count(whole, rows));
            if cursor.is_none() || read >= self.limit || page == MOST_PAGES {
                break;
            }
        }
        let (body, rows) = match whole {
            Some((body, whole)) => (body, count(&whole, rows)),
            None => (Body(Vec::new()), 0),
        };
        Ok(Found { body, rows, cursor })
    }
}

fn count(answer: &Value, rows: &str) -> usize {
    answer[rows].as_array().map_or(0, Vec::len)
}

/// Returns an answer with the rows of the next page, and the cursor of that.
fn joined(mut whole: Value, mut next: Value, rows: &str) -> Value {
    if let (Some(all), Some(more)) = (whole[rows].as_array_mut(), next[rows].as_array_mut()) {
        all.append(more);
    }
    whole["cursor"] = next["cursor"].take();
    whole
}
