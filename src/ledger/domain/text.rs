//! Names and strings of contracts as text.

/// Converts a name or string that may not be UTF-8 to text: invalid bytes become `\xNN`.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_shown_as_text() {
        assert_eq!(text(b"gr\xc3\xbc\xff\xc3!"), "grü\\xff\\xc3!");
    }
}
