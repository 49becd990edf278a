//! The stored form of a summary: one row for each shape and each name, so that a change writes what has
//! changed.

use serde::{Deserialize, Serialize};

use super::Place;
use super::shape::{Shape, ShapeKey};
use super::shapes::{Besides, Shapes};

/// Key of the row with what belongs to no shape, and the first byte of the other keys.
const REST: &[u8] = &[];
const NAME: u8 = b'n';
const SHAPE: u8 = b's';
const DECLARED: u8 = b'd';

/// A row: its key, and its value unless the row is deleted.
pub type Row = (Vec<u8>, Option<Vec<u8>>);

/// What belongs to no shape.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Rest {
    is_cut: bool,
    beyond: Option<(Place, ShapeKey)>,
    /// The first declared event that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared_before: Option<ShapeKey>,
    #[serde(default, skip_serializing_if = "is_default")]
    besides: Besides,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_default(besides: &Besides) -> bool {
    *besides == Besides::default()
}

impl Shapes {
    /// Returns the rows that differ from those of an earlier summary.
    pub fn rows_since(&self, before: &Self) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.rest() != before.rest() {
            rows.push((REST.to_vec(), Some(json(&self.rest()))));
        }
        let gone = before.names.difference(&self.names);
        rows.extend(gone.map(|name| (name_key(name), None)));
        let new = self.names.difference(&before.names);
        rows.extend(new.map(|name| (name_key(name), Some(Vec::new()))));
        let gone = before.declared.iter().filter(|(key, _)| self.declared.get(key).is_none());
        rows.extend(gone.map(|(key, _)| (stored_key(DECLARED, key), None)));
        let new = self.declared.iter().filter(|(key, _)| before.declared.get(key).is_none());
        rows.extend(new.map(|shape| (stored_key(DECLARED, shape.0), Some(json(&shape)))));
        let gone = before.shapes.keys().filter(|key| !self.shapes.contains_key(key));
        rows.extend(gone.map(|key| (stored_key(SHAPE, key), None)));
        let changed = self.shapes.iter().filter(|(key, now)| before.shapes.get(key) != Some(now));
        rows.extend(changed.map(|shape| (stored_key(SHAPE, shape.0), Some(json(&shape)))));
        rows
    }

    /// Returns the summary with these rows, which may be in any order; `None` when one is damaged.
    pub fn from_rows<'r>(rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) -> Option<Self> {
        let mut shapes = Self::default();
        let mut declared_before = None;
        for (key, value) in rows {
            match key.split_first() {
                None => {
                    let rest: Rest = serde_json::from_slice(value).ok()?;
                    (shapes.is_cut, shapes.beyond) = (rest.is_cut, rest.beyond);
                    (declared_before, shapes.besides) = (rest.declared_before, rest.besides);
                }
                Some((&NAME, name)) => {
                    shapes.names.insert(String::from_utf8(name.to_vec()).ok()?);
                }
                Some((&SHAPE, _)) => {
                    let (key, shape): (ShapeKey, Shape) = serde_json::from_slice(value).ok()?;
                    shapes.shapes.insert(key, shape);
                }
                Some((&DECLARED, _)) => {
                    let shape: (ShapeKey, Shape) = serde_json::from_slice(value).ok()?;
                    shapes.declared.add([shape]);
                }
                Some(_) => return None,
            }
        }
        if let Some(beyond) = declared_before {
            shapes.declared.keep_before(beyond);
        }
        Some(shapes.within_limits())
    }

    fn rest(&self) -> Rest {
        let declared_before = self.declared.beyond().cloned();
        let Self { is_cut, besides, .. } = *self;
        Rest { is_cut, beyond: self.beyond.clone(), declared_before, besides }
    }
}

fn name_key(name: &str) -> Vec<u8> {
    [&[NAME], name.as_bytes()].concat()
}

fn stored_key(kind: u8, key: &ShapeKey) -> Vec<u8> {
    [&[kind], key.fingerprint().as_slice()].concat()
}

/// Serialising to memory fails only for keys that are no strings, of which there are none here.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
