//! `orrery query`: SQL on a running service.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::output::{self, Json, Numbers};
use super::remote::Remote;
use super::{Failure, read_file};

#[derive(Debug, Args)]
pub struct Query {
    /// One read-only SQL statement; - for standard input
    sql: String,
    /// Value of a parameter, as JSON or else as text; repeated in the order of the parameters
    #[arg(long = "param", value_name = "VALUE")]
    params: Vec<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "NUMBER")]
    max_rows: Option<u64>,
    /// How 64-bit and wider integers are written
    #[arg(long, value_enum, default_value_t = Numbers::Exact)]
    numbers: Numbers,
    /// Format of the result
    #[arg(long, value_enum, default_value_t = Format::Rows)]
    format: Format,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Rows,
    Columns,
    Csv,
    Parquet,
    Arrow,
}

impl Query {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let to_terminal = output::is_terminal();
        if to_terminal && matches!(self.format, Format::Parquet | Format::Arrow) {
            let format = word(self.format);
            return Err(Failure::usage(format!(
                "--format {format} cannot be shown on a terminal: send it to a file, as in `… > rows.{format}`"
            )));
        }
        let sql = match self.sql.as_str() {
            "-" => String::from_utf8(read_file("-".as_ref())?)
                .map_err(|_| Failure::failed("the statement on standard input is not UTF-8"))?,
            _ => self.sql,
        };
        let params = self
            .params
            .iter()
            .map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())));
        let mut body = json!({
            "query": sql,
            "params": params.collect::<Vec<Value>>(),
            "numbers": word(self.numbers),
            "format": word(self.format),
        });
        if let Some(most) = self.max_rows {
            body["max_rows"] = most.into();
        }
        let answer = remote.post("retroshade/query", &body)?;
        match self.format {
            Format::Rows => answer.show(self.output.json, &[]),
            Format::Columns => answer.print(),
            Format::Csv if to_terminal => answer.print(),
            Format::Csv => output::print_bytes(&with_line_feeds(&answer.0)),
            Format::Parquet | Format::Arrow => output::print_bytes(&answer.0),
        }
    }
}

fn word<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Ends the records of comma-separated values with line feeds, as tools in a pipe expect. The service ends them
/// as RFC 4180 does. Line breaks in fields, which are quoted, stay as they are.
fn with_line_feeds(csv: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(csv.len());
    let mut is_quoted = false;
    for (at, byte) in csv.iter().enumerate() {
        // A quote inside of a field is doubled, which changes it twice.
        is_quoted ^= *byte == b'"';
        if is_quoted || *byte != b'\r' || csv.get(at + 1) != Some(&b'\n') {
            lines.push(*byte);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_with_line_feeds_and_fields_stay_as_they_are() {
        for (csv, expected) in [
            ("a,b\r\n1,\r\n\r\n", "a,b\n1,\n\n"),
            ("a\r\n\"x\r\ny\"\r\n", "a\n\"x\r\ny\"\n"),
            ("\"\"\"\r\n\"\"\",\"\"\r\n2\r\n", "\"\"\"\r\n\"\"\",\"\"\n2\n"),
            ("a\nb\rc\r\n", "a\nb\rc\n"),
            ("", ""),
        ] {
            assert_eq!(with_line_feeds(csv.as_bytes()), expected.as_bytes(), "{csv:?}");
        }
    }
}
