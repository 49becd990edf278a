//! Numbers as JavaScript reads them from text.

/// Returns the number that a text is for `Number` of JavaScript (ECMA-262, StringToNumber); NaN for other
/// text.
pub(super) fn number(text: &str) -> f64 {
    let text = text.trim();
    let radix = |digits: &str, radix| match digits.chars().all(|it| it.is_digit(radix)) {
        // More digits than these are beyond all limits.
        true if digits.len() > 64 => f64::INFINITY,
        true => u128::from_str_radix(digits, radix).map_or(f64::NAN, |number| number as f64),
        false => f64::NAN,
    };
    let prefix = text.get(..2).map(str::to_ascii_lowercase);
    match prefix.as_deref() {
        _ if text.is_empty() => 0.0,
        Some("0x") => radix(&text[2..], 16),
        Some("0o") => radix(&text[2..], 8),
        Some("0b") => radix(&text[2..], 2),
        _ => decimal(text),
    }
}

fn decimal(text: &str) -> f64 {
    match text.strip_prefix(['+', '-']).unwrap_or(text) {
        "Infinity" if text.starts_with('-') => f64::NEG_INFINITY,
        "Infinity" => f64::INFINITY,
        // Rust also reads words.
        rest if rest.chars().all(|it| it.is_ascii_digit() || ".eE+-".contains(it)) => {
            text.parse().unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_javascript_reads_them() {
        for (text, expected) in [
            ("20", 20.0),
            (" 20\t", 20.0),
            ("1e2", 100.0),
            ("1E+2", 100.0),
            ("0020", 20.0),
            ("+5", 5.0),
            ("5.", 5.0),
            (".5e1", 5.0),
            ("20.0", 20.0),
            ("0x10", 16.0),
            ("0B101", 5.0),
            ("0o17", 15.0),
            ("", 0.0),
            ("  ", 0.0),
            ("-1", -1.0),
            ("1.5", 1.5),
        ] {
            assert!((number(text) - expected).abs() < f64::EPSILON, "{text}");
        }
        for text in [
            "x", "1x", "1 2", "1_0", "inf", "nan", "NaN", ".", "e5", "1e", "+-1", "0x", "-0x1",
            "1,0",
        ] {
            assert!(number(text).is_nan(), "{text}");
        }
        assert!(number("Infinity").is_infinite() && number("1e999").is_infinite());
    }
}
