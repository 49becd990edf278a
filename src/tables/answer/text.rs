//! Formats values as plain text: digits, ISO 8601, hexadecimal. The caller decides whether to quote
//! it.

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use time::Duration;
use time::macros::date;

/// Days after which the Gregorian calendar repeats.
const DAYS_OF_400_YEARS: i64 = 146_097;

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, at: usize) -> Option<T::Native> {
    array.as_primitive_opt::<T>().map(|array| array.value(at))
}

/// Reads an integer of at most 64 bits, or one of 128 bits that Arrow holds as a decimal.
pub fn integer(array: &dyn Array, at: usize) -> Option<i128> {
    Some(match array.data_type() {
        DataType::Int8 => i128::from(primitive::<Int8Type>(array, at)?),
        DataType::Int16 => i128::from(primitive::<Int16Type>(array, at)?),
        DataType::Int32 => i128::from(primitive::<Int32Type>(array, at)?),
        DataType::Int64 => i128::from(primitive::<Int64Type>(array, at)?),
        DataType::UInt8 => i128::from(primitive::<UInt8Type>(array, at)?),
        DataType::UInt16 => i128::from(primitive::<UInt16Type>(array, at)?),
        DataType::UInt32 => i128::from(primitive::<UInt32Type>(array, at)?),
        DataType::UInt64 => i128::from(primitive::<UInt64Type>(array, at)?),
        _ => return decimal(array, at),
    })
}

/// Reads the unscaled value of a decimal. 128-bit integers have the same Arrow type and use all of
/// its bits.
pub fn decimal(array: &dyn Array, at: usize) -> Option<i128> {
    Some(match array.data_type() {
        DataType::Decimal32(..) => i128::from(primitive::<Decimal32Type>(array, at)?),
        DataType::Decimal64(..) => i128::from(primitive::<Decimal64Type>(array, at)?),
        DataType::Decimal128(..) => primitive::<Decimal128Type>(array, at)?,
        _ => return None,
    })
}

/// Formats a decimal: digits, with a point before the last `scale` of them.
pub fn point(digits: i128, scale: u8) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// Reads a string, or the name of an ENUM value.
pub fn text(array: &dyn Array, at: usize) -> Option<&str> {
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string_opt::<i32>()?.value(at)),
        DataType::LargeUtf8 => Some(array.as_string_opt::<i64>()?.value(at)),
        DataType::Utf8View => Some(array.as_string_view_opt()?.value(at)),
        DataType::Dictionary(..) => {
            let (key, names) = name(array, at)?;
            Some(names.value(key))
        }
        _ => None,
    }
}

/// Returns the key of a dictionary-encoded value and the dictionary's strings.
fn name(array: &dyn Array, at: usize) -> Option<(usize, &StringArray)> {
    if let Some(names) = array.as_dictionary_opt::<UInt8Type>() {
        return Some((usize::from(names.keys().value(at)), names.values().as_string_opt()?));
    }
    if let Some(names) = array.as_dictionary_opt::<UInt16Type>() {
        return Some((usize::from(names.keys().value(at)), names.values().as_string_opt()?));
    }
    let names = array.as_dictionary_opt::<UInt32Type>()?;
    Some((usize::try_from(names.keys().value(at)).ok()?, names.values().as_string_opt()?))
}

/// Reads a binary value.
pub fn bytes(array: &dyn Array, at: usize) -> Option<&[u8]> {
    match array.data_type() {
        DataType::Binary => Some(array.as_binary_opt::<i32>()?.value(at)),
        DataType::LargeBinary => Some(array.as_binary_opt::<i64>()?.value(at)),
        DataType::BinaryView => Some(array.as_binary_view_opt()?.value(at)),
        DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary_opt()?.value(at)),
        _ => None,
    }
}

/// Formats a date as ISO 8601.
pub fn date(array: &dyn Array, at: usize) -> Option<String> {
    Some(day(i64::from(primitive::<Date32Type>(array, at)?)))
}

fn day(days: i64) -> String {
    let infinite = i64::from(i32::MAX);
    if days.abs() == infinite {
        return infinity(days > 0);
    }
    // DuckDB's years exceed the range of `Date`, so the date is taken within one cycle of 400
    // years.
    let date = date!(1970 - 01 - 01) + Duration::days(days.rem_euclid(DAYS_OF_400_YEARS));
    let year = i64::from(date.year()) + 400 * days.div_euclid(DAYS_OF_400_YEARS);
    let (month, day) = (u8::from(date.month()), date.day());
    match year {
        0..=9_999 => format!("{year:04}-{month:02}-{day:02}"),
        // Years outside of 0 to 9999 need a sign (ISO 8601, expanded form).
        _ => format!("{year:+05}-{month:02}-{day:02}"),
    }
}

fn infinity(positive: bool) -> String {
    if positive { "infinity" } else { "-infinity" }.to_owned()
}

/// Formats a time of day.
pub fn time(array: &dyn Array, at: usize) -> Option<String> {
    Some(clock(primitive::<Time64MicrosecondType>(array, at)? * 1_000))
}

/// Formats nanoseconds since midnight as hours, minutes and seconds.
fn clock(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{clock}{}", fraction(nanos % 1_000_000_000))
}

/// Formats nanoseconds as the decimal fraction of a second, without trailing zeros.
fn fraction(nanos: i64) -> String {
    if nanos == 0 {
        return String::new();
    }
    format!(".{nanos:09}").trim_end_matches('0').to_owned()
}

/// Formats a timestamp as ISO 8601. `units` is the number of its units per second, and `zone` is
/// appended: empty without a zone, `Z` for UTC.
pub fn timestamp(array: &dyn Array, at: usize, units: i64, zone: &str) -> Option<String> {
    let value = match array.data_type() {
        DataType::Timestamp(arrow::datatypes::TimeUnit::Second, _) => {
            primitive::<TimestampSecondType>(array, at)?
        }
        DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, _) => {
            primitive::<TimestampMillisecondType>(array, at)?
        }
        DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _) => {
            primitive::<TimestampMicrosecondType>(array, at)?
        }
        DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, _) => {
            primitive::<TimestampNanosecondType>(array, at)?
        }
        _ => return None,
    };
    if value == i64::MAX || value == -i64::MAX {
        return Some(infinity(value > 0));
    }
    let (seconds, part) = (value.div_euclid(units), value.rem_euclid(units));
    let nanos = part * (1_000_000_000 / units);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    Some(format!("{}T{}{zone}", day(days), clock(second * 1_000_000_000 + nanos)))
}

/// Formats an interval as an ISO 8601 duration.
pub fn interval(array: &dyn Array, at: usize) -> Option<String> {
    let value = primitive::<IntervalMonthDayNanoType>(array, at)?;
    let mut text = String::from("P");
    let (years, months) = (value.months / 12, value.months % 12);
    for (number, unit) in [(years, 'Y'), (months, 'M'), (value.days, 'D')] {
        if number != 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    let seconds = value.nanoseconds / 1_000_000_000;
    let nanos = (value.nanoseconds % 1_000_000_000).abs();
    if value.nanoseconds != 0 {
        let sign = if value.nanoseconds < 0 { "-" } else { "" };
        let seconds = seconds.unsigned_abs();
        text.push('T');
        for (number, unit) in [(seconds / 3600, 'H'), (seconds / 60 % 60, 'M')] {
            if number != 0 {
                text.push_str(&format!("{sign}{number}{unit}"));
            }
        }
        if seconds % 60 != 0 || nanos != 0 {
            text.push_str(&format!("{sign}{}{}S", seconds % 60, fraction(nanos)));
        }
    }
    Some(if text == "P" { "PT0S".to_owned() } else { text })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, IntervalMonthDayNanoArray, TimestampMicrosecondArray};
    use arrow::datatypes::IntervalMonthDayNano;

    use super::*;

    #[test]
    fn days_are_formatted_as_calendar_dates() {
        for (days, shown) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (i32::MAX, "infinity"),
        ] {
            let array = Date32Array::from(vec![days]);
            assert_eq!(date(&array, 0).unwrap(), shown, "{days}");
        }
    }

    #[test]
    fn timestamps_keep_their_fractions() {
        let array = TimestampMicrosecondArray::from(vec![0, -1, 1_700_000_000_120_000, i64::MAX]);
        let shown = [
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59.999999",
            "2023-11-14T22:13:20.12",
            "infinity",
        ];
        for (at, shown) in shown.into_iter().enumerate() {
            assert_eq!(timestamp(&array, at, 1_000_000, "").unwrap(), shown);
        }
    }

    #[test]
    fn decimals_have_their_point_at_the_scale() {
        for (digits, scale, shown) in [
            (12345, 2, "123.45"),
            (-5, 2, "-0.05"),
            (0, 3, "0.000"),
            (7, 0, "7"),
            (i128::MIN, 0, "-170141183460469231731687303715884105728"),
        ] {
            assert_eq!(point(digits, scale), shown);
        }
    }

    #[test]
    fn intervals_are_formatted_in_iso_8601() {
        let of = |months, days, nanoseconds| IntervalMonthDayNano { months, days, nanoseconds };
        let array = IntervalMonthDayNanoArray::from(vec![
            of(0, 0, 0),
            of(14, -3, 3_600_000_000_000),
            of(0, 0, -90_500_000_000),
            of(0, 1, 1_000),
        ]);
        for (at, shown) in
            ["PT0S", "P1Y2M-3DT1H", "PT-1M-30.5S", "P1DT0.000001S"].iter().enumerate()
        {
            assert_eq!(interval(&array, at).unwrap(), *shown);
        }
    }
}
