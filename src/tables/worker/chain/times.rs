//! Times in the text of a query, as far as DuckDB certainly reads them in the same way: `2026-01-31`,
//! `2026-01-31 12:00`, `2026-01-31T12:00:00.5`.

use time::{Date, Month, PrimitiveDateTime, Time};

/// Returns the microseconds since the UNIX epoch of a time; `None` where it is written in another way.
pub fn microseconds(text: &str) -> Option<i64> {
    let (day, clock) = match text.split_once([' ', 'T']) {
        Some((day, clock)) => (day, self::clock(clock)?),
        None => (text, Time::MIDNIGHT),
    };
    let [year, month, day] = parts(day, '-', [4, 2, 2])?;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date =
        Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()?;
    let since = PrimitiveDateTime::new(date, clock).assume_utc().unix_timestamp_nanos() / 1000;
    i64::try_from(since).ok()
}

/// Reads `12:00`, `12:00:00` or `12:00:00.123456`.
fn clock(text: &str) -> Option<Time> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let [hour, minute, second] = match clock.len() {
        5 if !text.contains('.') => {
            let [hour, minute] = parts(clock, ':', [2, 2])?;
            [hour, minute, 0]
        }
        _ => parts(clock, ':', [2, 2, 2])?,
    };
    if text.ends_with('.') || fraction.len() > 6 {
        return None;
    }
    let microsecond = number(&format!("{fraction:0<6}"))?;
    let part = |number: u32| u8::try_from(number).ok();
    Time::from_hms_micro(part(hour)?, part(minute)?, part(second)?, microsecond).ok()
}

/// Reads numbers with these numbers of digits.
fn parts<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut found = [0; N];
    let mut parts = text.split(between);
    for (number, digits) in found.iter_mut().zip(digits) {
        *number = self::number(parts.next().filter(|part| part.len() == digits)?)?;
    }
    parts.next().is_none().then_some(found)
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;

    use super::*;

    #[test]
    fn times_are_those_that_duckdb_reads() {
        let connection = Connection::open_in_memory().unwrap();
        for text in [
            "2026-01-31",
            "1969-12-31 23:59:59.999999",
            "2024-02-29T12:30",
            "2024-02-29 12:30:05",
            "0001-01-01 00:00:00.5",
            "9999-12-31 23:59:59.000001",
        ] {
            let sql = "SELECT epoch_us(?::VARCHAR::TIMESTAMP)";
            let expected: i64 = connection.query_row(sql, [text], |row| row.get(0)).unwrap();
            assert_eq!(microseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn others_are_not_read() {
        for text in [
            "",
            "2026",
            "2026-1-31",
            "2026-02-30",
            "2026-01-31 ",
            "2026-01-31 24:00",
            "2026-01-31 12",
            "2026-01-31 12:00.5",
            "2026-01-31 12:00:00.",
            "2026-01-31 12:00:00.1234567",
            "2026-01-31 12:00:00Z",
            "2026-01-31 12:00:00+02",
            "-2026-01-31",
            "+026-01-31",
            "2026-01-31-01",
            "infinity",
            "２026-01-31",
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
    }
}
