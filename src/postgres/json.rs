//! JSON as PostgreSQL's `jsonb` writes it, so that the bytes which are sent are those that come back, and a digest
//! of them can be computed on both sides: members sorted by the length of their names and then by their bytes, the
//! last of equal ones, one blank behind `,` and `:`. Source: `jsonb_out`, `escape_json` and
//! `lengthCompareJsonbStringValue` in PostgreSQL's `src/backend/utils/adt`.

/// Maximum nesting. Values of contracts have 500 levels, of which maps make three each; PostgreSQL takes about
/// 6,000.
const DEEPEST: usize = 2_000;
/// Greatest exponent of a number.
const MOST_ZEROS: i64 = 400;

/// Writes JSON text to `to` as `jsonb` has it, and returns the number of characters U+0000 that were in it, which
/// are written as `\x00`; `None` when it is no JSON.
pub(super) fn canonical(text: &str, to: &mut Vec<u8>) -> Option<u64> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0, nuls: 0 };
    reader.value(to, 0)?;
    reader.blanks();
    (reader.at == reader.bytes.len()).then_some(reader.nuls)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    nuls: u64,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Returns the next byte behind blanks, without taking it.
    fn next(&mut self) -> Option<u8> {
        self.blanks();
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then(|| self.at += 1)
    }

    fn value(&mut self, to: &mut Vec<u8>, depth: usize) -> Option<()> {
        match self.next()? {
            _ if depth > DEEPEST => None,
            b'{' => self.object(to, depth),
            b'[' => self.array(to, depth),
            b'"' => {
                let text = self.string()?;
                write_string(&text, to);
                Some(())
            }
            b't' => self.word("true", to),
            b'f' => self.word("false", to),
            b'n' => self.word("null", to),
            _ => self.number(to),
        }
    }

    fn word(&mut self, word: &str, to: &mut Vec<u8>) -> Option<()> {
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| {
            self.at += word.len();
            to.extend_from_slice(word.as_bytes());
        })
    }

    fn array(&mut self, to: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.take(b'[')?;
        to.push(b'[');
        if self.next()? != b']' {
            loop {
                self.value(to, depth + 1)?;
                if self.next()? != b',' {
                    break;
                }
                self.at += 1;
                to.extend_from_slice(b", ");
            }
        }
        self.take(b']')?;
        to.push(b']');
        Some(())
    }

    fn object(&mut self, to: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.take(b'{')?;
        let mut members: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        if self.next()? != b'}' {
            loop {
                self.blanks();
                let name = self.string()?;
                self.take(b':')?;
                let mut value = Vec::new();
                self.value(&mut value, depth + 1)?;
                members.push((name, value));
                if self.next()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.take(b'}')?;
        // Of equal names the last one counts, which is the first of those in reverse order.
        members.reverse();
        members.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
        members.dedup_by(|(a, _), (b, _)| a == b);
        to.push(b'{');
        for (number, (name, value)) in members.iter().enumerate() {
            if number > 0 {
                to.extend_from_slice(b", ");
            }
            write_string(name, to);
            to.extend_from_slice(b": ");
            to.extend_from_slice(value);
        }
        to.push(b'}');
        Some(())
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        self.take(b'"')?;
        let mut text = Vec::new();
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return Some(text),
                b'\\' => self.escape(&mut text)?,
                0..0x20 => return None,
                byte => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        text.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(text),
            _ => return None,
        });
        Some(())
    }

    fn unicode(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let mut number = self.hex()?;
        if (0xd800..0xdc00).contains(&number) && self.bytes[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            match self.hex()? {
                low @ 0xdc00..0xe000 => {
                    number = 0x1_0000 + ((number - 0xd800) << 10) + (low - 0xdc00)
                }
                _ => self.at = before,
            }
        }
        if number == 0 {
            self.nuls += 1;
            text.extend_from_slice(br"\x00");
            return Some(());
        }
        // Half of a pair is no character.
        let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.bytes.get(self.at..self.at + 4)?).ok()?;
        self.at += 4;
        digits.bytes().all(|it| it.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    }

    fn digits(&mut self) -> &str {
        let from = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[from..self.at]).unwrap_or_default()
    }

    fn number(&mut self, to: &mut Vec<u8>) -> Option<()> {
        let is_negative = self.bytes.get(self.at) == Some(&b'-');
        self.at += usize::from(is_negative);
        let mut whole = self.digits().to_owned();
        (!whole.is_empty() && (whole.len() == 1 || !whole.starts_with('0'))).then_some(())?;
        let mut part = String::new();
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            part = self.digits().to_owned();
            (!part.is_empty()).then_some(())?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            let sign = match self.bytes.get(self.at) {
                Some(b'-') => -1,
                Some(b'+') => 1,
                _ => 0,
            };
            self.at += usize::from(sign != 0);
            let exponent: i64 = self.digits().parse().ok()?;
            (exponent <= MOST_ZEROS).then_some(())?;
            shift(&mut whole, &mut part, if sign < 0 { -exponent } else { exponent });
        }
        let is_zero = whole.bytes().chain(part.bytes()).all(|it| it == b'0');
        if is_negative && !is_zero {
            to.push(b'-');
        }
        let whole = whole.trim_start_matches('0');
        to.extend_from_slice(if whole.is_empty() { b"0" } else { whole.as_bytes() });
        if !part.is_empty() {
            to.push(b'.');
            to.extend_from_slice(part.as_bytes());
        }
        Some(())
    }
}

/// Moves the point between the digits of a number, to the right if `by` is positive.
fn shift(whole: &mut String, part: &mut String, by: i64) {
    for _ in 0..by.unsigned_abs() {
        if by > 0 {
            whole.push(if part.is_empty() { '0' } else { part.remove(0) });
        } else {
            part.insert(0, whole.pop().unwrap_or('0'));
        }
    }
}

fn write_string(text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    for &byte in text {
        match byte {
            8 => to.extend_from_slice(b"\\b"),
            12 => to.extend_from_slice(b"\\f"),
            b'\n' => to.extend_from_slice(b"\\n"),
            b'\r' => to.extend_from_slice(b"\\r"),
            b'\t' => to.extend_from_slice(b"\\t"),
            b'"' => to.extend_from_slice(b"\\\""),
            b'\\' => to.extend_from_slice(b"\\\\"),
            0..0x20 => to.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => to.push(byte),
        }
    }
    to.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jsonb_writes() {
        for (text, expected) in [
            (r#" {"bb":1,"a" : [ ] ,"c":{}} "#, r#"{"a": [], "c": {}, "bb": 1}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
            (r#"["\u0041\/\u00e9\ud83d\ude00\u001f\u007f"]"#, "[\"A/é😀\\u001f\u{7f}\"]"),
            (r#""\ud800x\udc00""#, "\"\u{fffd}x\u{fffd}\""),
            ("-0", "0"),
            ("-0.50", "-0.50"),
            ("1.5e2", "150"),
            ("15E-3", "0.015"),
            ("1e0", "1"),
            ("[true,false,null,18446744073709551616]", "[true, false, null, 18446744073709551616]"),
        ] {
            let mut written = Vec::new();
            assert_eq!(canonical(text, &mut written), Some(0), "{text}");
            assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
        let mut written = Vec::new();
        assert_eq!(canonical(r#"{"a\u0000":"\u0000\\u0000"}"#, &mut written), Some(2));
        assert_eq!(String::from_utf8(written).unwrap(), r#"{"a\\x00": "\\x00\\u0000"}"#);
    }

    #[test]
    fn what_is_no_json() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "[1,]",
            "01",
            "1.",
            "1e",
            "nul",
            "\"\u{1}\"",
            r#""\x""#,
            "1 2",
            "{1:2}",
            &deep,
        ] {
            assert_eq!(canonical(text, &mut Vec::new()), None, "{}", &text[..text.len().min(20)]);
        }
    }
}
