//! Numbers of the smallest unit of a token, in its unit.

/// Largest number of decimals that is applied: no integer of a contract has more digits, and contracts
/// choose the number of their decimals freely.
const MOST_DECIMALS: u32 = 78;

/// Returns a whole number with the point before the last `decimals` digits, and without zeros at its end;
/// the text itself if it is no whole number, or if the number of decimals makes no sense.
pub fn in_units(number: &str, decimals: u32) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_whole || decimals > MOST_DECIMALS {
        return number.to_owned();
    }
    let decimals = decimals as usize;
    let digits = format!("{digits:0>width$}", width = decimals + 1);
    let (whole, part) = digits.split_at(digits.len() - decimals);
    match part.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        part => format!("{sign}{whole}.{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_point_before_the_decimals() {
        for (number, decimals, expected) in [
            ("2387354578", 7, "238.7354578"),
            ("10000000", 7, "1"),
            ("15000000", 7, "1.5"),
            ("1", 7, "0.0000001"),
            ("-1", 7, "-0.0000001"),
            ("-25", 0, "-25"),
            ("0", 7, "0"),
            ("5", 1, "0.5"),
            ("7", 78, &format!("0.{}7", "0".repeat(77))),
            ("7", 79, "7"),
            ("7", u32::MAX, "7"),
            ("null", 7, "null"),
            ("1.5", 7, "1.5"),
            ("", 7, ""),
            ("-", 7, "-"),
        ] {
            assert_eq!(in_units(number, decimals), expected, "{number} {decimals}");
        }
    }
}
