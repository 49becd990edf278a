//! `orrery mcp`: hands the messages of a language model's client on to a running service, and its answers
//! back (Model Context Protocol, transport "stdio": one message a line). The service has the tools
//! (`/mcp`), so that both transports answer alike.

use std::io::{self, BufRead, Read};

use clap::Args;
use orrery::api::LARGEST_BODY;
use orrery::net::reqwest::StatusCode;
use serde_json::{Value, json};

use super::remote::{Body, Remote};
use super::{Failure, escape, output};

/// Code of an error of the one who answers (JSON-RPC 2.0, section 5.1).
const INTERNAL: i64 = -32603;
/// Code of an error for a message that is none.
const INVALID_REQUEST: i64 = -32600;

/// Let a language model read events, transactions and tables of a running service
///
/// Speaks the Model Context Protocol over standard input and output, for a client that starts it. The
/// tools only read. They see what the token's owner may see.
#[derive(Debug, Args)]
#[command(after_help = "A client's configuration:
  {\"mcpServers\": {\"orrery\": {\"command\": \"orrery\", \"args\": [\"mcp\"], \"env\": {\"ORRERY_JWT\": \"…\"}}}}

Example:
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}' | orrery mcp")]
pub struct Mcp {}

impl Mcp {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        remote.token()?;
        let mut input = io::stdin().lock();
        while let Some(line) = next_line(&mut input)? {
            if let Some(answer) = answer(remote, line) {
                // No line break is left in it, and no character that a terminal or a log obeys.
                output::print(&format!("{}\n", escape::json(&answer)))?;
            }
        }
        Ok(())
    }
}

/// A line of the input.
enum Line {
    Message(Vec<u8>),
    /// It was longer than the service accepts, and has been skipped.
    TooLong,
}

/// Reads the next line that is not blank; `None` at the end of the input.
fn next_line(input: &mut impl BufRead) -> Result<Option<Line>, Failure> {
    let unread = |error: io::Error| Failure::failed(format!("cannot read standard input: {error}"));
    loop {
        let mut line = Vec::new();
        let mut limited = input.by_ref().take(LARGEST_BODY as u64 + 1);
        if limited.read_until(b'\n', &mut line).map_err(unread)? == 0 {
            return Ok(None);
        }
        if line.len() > LARGEST_BODY && line.last() != Some(&b'\n') {
            input.skip_until(b'\n').map_err(unread)?;
            return Ok(Some(Line::TooLong));
        }
        if !line.iter().all(u8::is_ascii_whitespace) {
            return Ok(Some(Line::Message(line)));
        }
    }
}

/// Returns the answer to a line; `None` for a notification.
fn answer(remote: &Remote, line: Line) -> Option<String> {
    let message = match line {
        Line::Message(message) => message,
        Line::TooLong => {
            let sentence = format!("a message is longer than {LARGEST_BODY} bytes: send less");
            return Some(error(&Value::Null, INVALID_REQUEST, &sentence));
        }
    };
    // Only the id: the service reads the message. What has none is a notification, if it is a message.
    let id = match serde_json::from_slice(&message) {
        Ok(Value::Object(mut members)) => members.remove("id"),
        _ => Some(Value::Null),
    };
    let (code, sentence) = match remote.send_message(message) {
        Ok((status, Body(body))) if status.is_success() && is_message(&body) => {
            return (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned());
        }
        Ok((status, _)) if status.is_success() || is_absent(status) => {
            (INTERNAL, absent(remote, status))
        }
        Ok((status, Body(body))) => refusal(status, &body),
        Err(failure) => (INTERNAL, failure.to_string()),
    };
    if id.is_none() {
        output::note(&sentence);
    }
    id.map(|id| error(&id, code, &sentence))
}

/// Whether the body of a success is one of the service: a message, or nothing.
fn is_message(body: &[u8]) -> bool {
    body.is_empty() || serde_json::from_slice::<Value>(body).is_ok_and(|it| it["jsonrpc"] == "2.0")
}

/// Whether a status says that there is no such route, or none to which messages are sent.
fn is_absent(status: StatusCode) -> bool {
    status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED
}

/// Returns the sentence about an address where nothing takes messages.
fn absent(remote: &Remote, status: StatusCode) -> String {
    let status = status.as_u16();
    let base = remote.base().unwrap_or_default();
    let root = base.strip_suffix("/rest").unwrap_or(&base);
    format!(
        "{root}/mcp does not take messages (status {status}): the service there is an older version, or a proxy before \
         it does not pass /mcp on"
    )
}

/// Returns code and sentence of an answer that is no success.
fn refusal(status: StatusCode, body: &[u8]) -> (i64, String) {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    // The steps before the route answer as REST does.
    let sentence = body["error"]["message"].as_str().or_else(|| body["error"].as_str());
    let sentence = match sentence {
        Some(sentence) => sentence.to_owned(),
        None => format!("the service answered {status}: check --base, which ends in /rest"),
    };
    (body["error"]["code"].as_i64().unwrap_or(INTERNAL), sentence)
}

fn error(id: &Value, code: i64, sentence: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": sentence } })
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_blank_ones_skipped() {
        let long = "x".repeat(LARGEST_BODY + 10);
        let full = "y".repeat(LARGEST_BODY);
        let text = format!("\n{{}}\n  \n{long}\n{full}\nlast");
        let mut input = text.as_bytes();
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            lines.push(match line {
                Line::Message(line) => line.len(),
                Line::TooLong => 0,
            });
        }
        assert_eq!(lines, [3, 0, LARGEST_BODY + 1, 4]);
    }
}
