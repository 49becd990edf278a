//! Events that are told by their bytes. What is found is what [`declaration`](super::declaration()) finds;
//! where that is not certain from the bytes alone, nothing is found, and the values have to be read.

use stellar_xdr::ScSpecEventDataFormat;

use super::event::Event;
use super::flat::{Scalar, ScalarKind, is_map, is_text, is_vec, is_void};
use super::interface::Interface;

/// Largest number of bytes of a topic or data that is looked at here.
const MOST_BYTES: usize = 1 << 16;
/// Largest number of declarations with the same prefix and number of topics: with more, the search by
/// values counts steps that could exceed its budget.
const MOST_FORMS: usize = 4;

impl Interface {
    /// Returns the number of the declaration that an event has, and gives `take` the value of each
    /// parameter with its number in declared order; `None` when the bytes alone do not tell, and then
    /// `take` may have got some. Takes the XDR of the topics and of the data.
    ///
    /// Certain is a declaration with the event's number of topics and its prefix, if the event has exactly
    /// its parameters, and others with the same have data of another form: it comes before all others
    /// with which the event is compared.
    pub fn flat_declaration<'x>(
        &self,
        topics: impl Iterator<Item = &'x [u8]> + Clone,
        data: &'x [u8],
        take: impl FnMut(usize, Scalar<'x>),
    ) -> Option<usize> {
        let mut count = 0;
        for part in topics.clone().chain([data]) {
            count += 1;
            if part.len() > MOST_BYTES {
                return None;
            }
        }
        let tried = self.with_topics(count - 1)?;
        let (mut found, mut forms) = (None, 0);
        for number in tried {
            let event = &self.declarations()[*number];
            let prefix = event.declared.prefix_topics.iter();
            let mut leading = topics.clone();
            let mut has_prefix = prefix.clone();
            if !has_prefix.all(|text| leading.next().is_some_and(|it| is_text(it, text.as_slice())))
            {
                continue;
            }
            forms += 1;
            let is_one = may_be_data(event, data);
            if forms > MOST_FORMS || (is_one && found.replace((*number, prefix.len())).is_some()) {
                return None;
            }
        }
        let (number, prefix) = found?;
        let flat = self.declarations()[number].flat.as_ref()?;
        flat.read(topics.skip(prefix), data, take).map(|()| number)
    }

    /// Returns the kinds of the parameters of a declaration, in declared order, if all are scalars.
    pub fn flat_kinds(&self, number: usize) -> Option<&[ScalarKind]> {
        Some(self.declarations().get(number)?.flat.as_ref()?.kinds())
    }

    /// Returns the names of the parameters of a declaration as columns and members, in declared order.
    pub fn parameter_names(&self, number: usize) -> &[String] {
        self.declarations().get(number).map_or(&[], |event| &event.names)
    }
}

/// Whether data may be that of a declared event, by the discriminant of its XDR alone.
fn may_be_data(event: &Event, data: &[u8]) -> bool {
    match event.declared.data_format {
        ScSpecEventDataFormat::SingleValue => !event.data.is_empty() || is_void(data),
        ScSpecEventDataFormat::Vec => is_vec(data),
        ScSpecEventDataFormat::Map => is_map(data),
    }
}
