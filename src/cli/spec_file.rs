//! Interfaces in files, in the forms in which tools write them: a module, JSON with the entries as
//! objects or as base64, or the section of a module, as it is or as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::interfaces::entries_of;
use serde_json::Value;
use stellar_xdr::{Limits, ReadXdr, ScSpecEntry};

use super::Failure;

/// Reads a unit of UTF-16.
type Unit = fn([u8; 2]) -> u16;

/// Beginning of a module of WebAssembly.
const MODULE: &[u8] = b"\0asm";
/// Byte order marks of UTF-8 and of both orders of UTF-16, which some editors and shells write.
const UTF_8: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [(&[u8], Unit); 2] =
    [(b"\xff\xfe", u16::from_le_bytes), (b"\xfe\xff", u16::from_be_bytes)];
/// Maximum depth of an entry that is decoded here; the service has a limit of its own.
const DEEPEST: u32 = 500;

/// Returns the content of a file as the member `spec` of a request; `name` names the file.
///
/// # Errors
/// When it is in none of the forms.
pub fn member(content: &[u8], name: &str) -> Result<Value, Failure> {
    if content.starts_with(MODULE) {
        return Ok(STANDARD.encode(content).into());
    }
    let Some(text) = text(content) else {
        return section(content).ok_or_else(|| unknown(name, "it is neither text nor XDR"));
    };
    let found = serde_json::from_str(&text);
    match found {
        Ok(Value::Array(list)) if !list.is_empty() && list.iter().all(Value::is_string) => {
            let entries: Option<Vec<Value>> = list.iter().map(entry).collect();
            entries
                .map(Value::Array)
                .ok_or_else(|| unknown(name, "its texts are not entries of an interface in base64"))
        }
        Ok(Value::String(text)) => of_base64(&text, name),
        Ok(value) => Ok(value),
        Err(_) if is_base64(&text) => of_base64(&text, name),
        Err(error) => Err(unknown(name, &error.to_string())),
    }
}

fn unknown(name: &str, reason: &str) -> Failure {
    Failure::failed(format!(
        "{name} is neither a module nor an interface ({reason}): give a .wasm file, or what `stellar \
         contract info interface --output json` prints"
    ))
}

/// Returns a text without its byte order mark; `None` for other content.
fn text(content: &[u8]) -> Option<String> {
    for (mark, unit) in UTF_16 {
        if let Some(rest) = content.strip_prefix(mark) {
            let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
            return String::from_utf16(&units.collect::<Vec<_>>()).ok();
        }
    }
    let content = content.strip_prefix(UTF_8).unwrap_or(content);
    String::from_utf8(content.to_vec()).ok()
}

fn is_base64(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
    let mut letters = text.chars().filter(|letter| !letter.is_ascii_whitespace()).peekable();
    letters.peek().is_some() && letters.all(is_part)
}

/// Returns the member for a module or a section that is written in base64, perhaps in lines.
fn of_base64(text: &str, name: &str) -> Result<Value, Failure> {
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(text).map_err(|error| unknown(name, &error.to_string()))?;
    if bytes.starts_with(MODULE) {
        return Ok(STANDARD.encode(bytes).into());
    }
    section(&bytes).ok_or_else(|| unknown(name, "its base64 is that of something else"))
}

/// Returns the entries of a section; `None` when it is none.
fn section(bytes: &[u8]) -> Option<Value> {
    let entries = entries_of(bytes).ok().filter(|entries| !entries.is_empty())?;
    serde_json::to_value(entries).ok()
}

/// Returns an entry that is written in base64.
fn entry(text: &Value) -> Option<Value> {
    let bytes = STANDARD.decode(text.as_str()?.trim()).ok()?;
    let limits = Limits { depth: DEEPEST, len: bytes.len() };
    serde_json::to_value(ScSpecEntry::from_xdr(bytes, limits).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use stellar_xdr::WriteXdr;

    use super::*;

    #[test]
    fn every_form_gives_the_same_entries() {
        let json = orrery::interfaces::bundled_text("aquarius").unwrap();
        let expected: Value = serde_json::from_str(json).unwrap();
        let entries: Vec<ScSpecEntry> = serde_json::from_str(json).unwrap();
        let xdr: Vec<Vec<u8>> =
            entries.iter().map(|one| one.to_xdr(Limits::none()).unwrap()).collect();
        let array: Vec<String> = xdr.iter().map(|one| STANDARD.encode(one)).collect();
        let section = xdr.concat();
        let base64 = STANDARD.encode(&section);
        let wrapped: Vec<&str> =
            base64.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let wide = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            format!("\u{feff}{text}").encode_utf16().flat_map(bytes).collect()
        };
        for form in [
            json.as_bytes().to_vec(),
            format!("\u{feff}{json}").into_bytes(),
            wide(json, u16::to_le_bytes),
            wide(json, u16::to_be_bytes),
            serde_json::to_vec(&array).unwrap(),
            wrapped.join("\r\n").into_bytes(),
            serde_json::to_vec(&base64).unwrap(),
            section,
        ] {
            assert_eq!(member(&form, "it").unwrap(), expected);
        }
        let module = b"\0asm\x01\0\0\0";
        let encoded = STANDARD.encode(module);
        assert_eq!(member(module, "it").unwrap(), Value::from(encoded.as_str()));
        assert_eq!(member(encoded.as_bytes(), "it").unwrap(), Value::from(encoded.as_str()));
    }

    #[test]
    fn other_files_are_refused_in_one_sentence() {
        for other in [&b"hello, there"[..], b"", b"[\"AAAA\"]", b"QUJD", b"\xff\x00\x01", b"[1,"] {
            let failure = member(other, "f.json").err();
            let sentence = failure.expect("it is refused").to_string();
            assert!(sentence.starts_with("f.json is neither a module nor"), "{sentence}");
            assert!(!sentence.contains('\n'), "{sentence}");
        }
    }
}
