//! JSON text, and a writer for long answers: they are mostly base64, which needs neither
//! intermediate strings nor escaping.

use std::fmt::{Display, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use super::RpcError;

/// The serialised text of a JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json {
    text: String,
    is_cacheable: bool,
}

impl Json {
    /// Serialises a value with serde.
    ///
    /// # Errors
    /// Fails when the value cannot be serialised as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, RpcError> {
        Ok(Self::written(serde_json::to_string(value)?))
    }

    /// Wraps text that already is one JSON value.
    fn written(text: String) -> Self {
        Self { text, is_cacheable: false }
    }

    /// Returns the text.
    pub fn get(&self) -> &str {
        &self.text
    }

    /// Marks the value as an answer that stays the same until the store changes, whatever the
    /// caller and the time.
    pub(super) fn cacheable(self) -> Self {
        Self { is_cacheable: true, ..self }
    }

    /// Returns whether the value is marked with [`Self::cacheable`].
    pub(super) fn is_cacheable(&self) -> bool {
        self.is_cacheable
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Self::written(Box::<str>::from(value).into_string())
    }
}

/// Writes one JSON value after another and inserts the commas between them.
#[derive(Default)]
pub(super) struct Writer(String);

impl Writer {
    /// Creates a writer with capacity for `bytes` bytes.
    pub(super) fn with_room_for(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Number of bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes back what was written after the first `length` bytes.
    pub(super) fn take_back_to(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Returns the text, which must be one complete value.
    pub(super) fn finish(self) -> Json {
        Json::written(self.0)
    }

    /// Returns the text, which need not be a complete value.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn separate(&mut self) {
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
    }

    /// Opens an object or an array.
    pub(super) fn open(&mut self, bracket: char) {
        self.separate();
        self.0.push(bracket);
    }

    /// Closes the innermost object or array.
    pub(super) fn close(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    /// Writes the name of the member whose value follows.
    pub(super) fn name(&mut self, name: &str) {
        self.separate();
        self.0.extend(["\"", name, "\":"]);
    }

    /// Writes a number, `true` or `false`.
    pub(super) fn bare(&mut self, value: impl Display) {
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{value}");
    }

    /// Writes a string in which nothing has to be escaped.
    pub(super) fn plain(&mut self, text: impl Display) {
        self.separate();
        let _ = write!(self.0, "\"{text}\"");
    }

    /// Writes XDR as a string in standard base64.
    pub(super) fn base64(&mut self, xdr: &[u8]) {
        self.separate();
        self.0.push('"');
        STANDARD.encode_string(xdr, &mut self.0);
        self.0.push('"');
    }

    /// Writes a value, or members of an object, that are serialised already.
    pub(super) fn written(&mut self, text: &str) {
        self.separate();
        self.0.push_str(text);
    }

    /// Writes the members of a value that serde serialises as an object.
    ///
    /// # Errors
    /// Fails when the value cannot be serialised as JSON.
    pub(super) fn members_of(&mut self, object: &impl Serialize) -> Result<(), RpcError> {
        let text = serde_json::to_string(object)?;
        let members = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        if let Some(members) = members.filter(|members| !members.is_empty()) {
            self.written(members);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_produces_the_same_json_as_serde() {
        #[derive(Serialize)]
        struct Last {
            text: &'static str,
            none: Option<u8>,
        }
        let last = Last { text: "a \"b\"\n", none: None };
        let mut writer = Writer::with_room_for(10);
        writer.open('{');
        writer.name("list");
        writer.open('[');
        writer.bare(1);
        writer.base64(b"{");
        writer.open('[');
        writer.close(']');
        writer.plain("x:");
        writer.open('{');
        writer.name("a");
        writer.bare(true);
        writer.close('}');
        writer.close(']');
        writer.name("empty");
        writer.open('{');
        writer.close('}');
        writer.members_of(&last).unwrap();
        writer.members_of(&serde_json::json!({})).unwrap();
        writer.close('}');
        let wanted = serde_json::json!({
            "list": [1, "ew==", [], "x:", { "a": true }], "empty": {}, "text": "a \"b\"\n", "none": null,
        });
        let written = writer.finish();
        assert_eq!(serde_json::from_str::<serde_json::Value>(written.get()).unwrap(), wanted);
        assert_eq!(Json::of(&wanted).unwrap().get().len(), written.get().len());
    }
}
