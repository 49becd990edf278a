//! In-memory rows, in place of a consumer's rows in the store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use orrery::store::{RowFlow, Rows, RowsMut, StoreError};

/// Values by column family and key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory(pub BTreeMap<(String, Vec<u8>), Vec<u8>>);

impl Rows for Memory {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.get(&(family.to_owned(), key.to_vec())).cloned())
    }

    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow {
        let rows = self.0.range((family.to_owned(), [prefix, from].concat())..);
        for ((_, key), value) in rows.take_while(|((of, _), _)| of == family) {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            if visit(rest, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl RowsMut for Memory {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.0.insert((family.to_owned(), key), value);
        Ok(())
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        self.0.remove(&(family.to_owned(), key));
        Ok(())
    }
}
