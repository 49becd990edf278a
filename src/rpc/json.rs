//! JSON text, and how it is written where it is long: answers are mostly base64, which needs neither strings of its own
//! nor a look for what has to be escaped.

use std::fmt::{Display, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use super::RpcError;

/// The text of a JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json {
    text: String,
    lasts: bool,
}

impl Json {
    /// What serde makes of a value.
    ///
    /// # Errors
    /// When it cannot be spelled.
    pub fn of(value: &impl Serialize) -> Result<Self, RpcError> {
        Ok(Self::written(serde_json::to_string(value)?))
    }

    /// Text that is one JSON value already.
    fn written(text: String) -> Self {
        Self { text, lasts: false }
    }

    /// The text.
    pub fn get(&self) -> &str {
        &self.text
    }

    /// As the answer to a call that is answered the same until the store changes, whoever asks and when.
    pub(super) fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// Whether it is such an answer.
    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Self::written(Box::<str>::from(value).into_string())
    }
}

/// Writes one value after the other; commas are put between them.
#[derive(Default)]
pub(super) struct Writer(String);

impl Writer {
    /// With room for about so many bytes.
    pub(super) fn with_room_for(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What was written, which is one whole value.
    pub(super) fn finish(self) -> Json {
        Json::written(self.0)
    }

    /// What was written, if it is no whole value yet.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn separate(&mut self) {
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
    }

    /// Opens an object or a list.
    pub(super) fn open(&mut self, bracket: char) {
        self.separate();
        self.0.push(bracket);
    }

    /// Closes it.
    pub(super) fn close(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    /// The name of the member whose value comes next.
    pub(super) fn name(&mut self, name: &str) {
        self.separate();
        self.0.extend(["\"", name, "\":"]);
    }

    /// A number, `true` or `false`.
    pub(super) fn bare(&mut self, value: impl Display) {
        self.separate();
        // Writing to a string does not fail.
        let _ = write!(self.0, "{value}");
    }

    /// Text in which nothing has to be escaped.
    pub(super) fn plain(&mut self, text: impl Display) {
        self.separate();
        let _ = write!(self.0, "\"{text}\"");
    }

    /// XDR as text in standard base64.
    pub(super) fn base64(&mut self, xdr: &[u8]) {
        self.separate();
        self.0.push('"');
        STANDARD.encode_string(xdr, &mut self.0);
        self.0.push('"');
    }

    /// A value, or members of an object, that are written already.
    pub(super) fn written(&mut self, text: &str) {
        self.separate();
        self.0.push_str(text);
    }

    /// The members of what serde makes an object of.
    ///
    /// # Errors
    /// When it cannot be spelled.
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
    fn what_is_written_is_what_serde_would_write() {
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
