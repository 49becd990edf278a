//! `orrery events`: the stream of events in the terminal.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::output::{self, Json};
use super::remote::{Remote, draws_tables, with_query};
use super::topics::Topics;
use super::{Failure, grid};

/// Shortest and longest time after which a stream that has ended is asked for again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of one message.
const LONGEST_MESSAGE: usize = 16 << 20;
/// Maximum number of characters of a value that a line shows.
const LONGEST_VALUE: usize = 160;

/// Show events as the service stores them
///
/// One line for each event, on a terminal its ledger, contract, name and parameters, else JSON. Goes on where it
/// was when the connection breaks, until it is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery events --follow --contract C…
  orrery events --follow --contract C… --where \"amount >= 1000000000 and to = 'G…'\"
  orrery events --follow --project pools
  orrery events --follow --contract C… --after 0 --json | jq .decoded.params")]
pub struct Events {
    /// Show new events as they are stored
    #[arg(long)]
    follow: bool,
    /// Only events of this contract
    #[arg(long, value_name = "C…")]
    contract: Option<String>,
    /// Only events of this project, one that you read
    #[arg(long, value_name = "NAME", conflicts_with = "contract")]
    project: Option<String>,
    /// Only events for which this is true, such as "amount >= 1000000000 and to = 'G…'"
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    topics: Topics,
    /// Only events with this address in a topic
    #[arg(long, value_name = "G…|C…")]
    address: Option<String>,
    /// Begin behind the event with this id, 0 for the first stored one, instead of with new ones
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    #[command(flatten)]
    output: Json,
}

impl Events {
    /// Follows the stream until the service refuses.
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        if !self.follow {
            return Err(Failure::usage(
                "give --follow, to see new events as they are stored; earlier ones are in SQL, and in \
                 the API's lists",
            ));
        }
        let parameters = [
            ("contract_id", self.contract.clone()),
            ("project", self.project.clone()),
            ("where", self.condition.clone()),
            ("address", self.address.clone()),
            ("decoded", Some("true".to_owned())),
        ];
        let topics = self.topics.parameters();
        let path = with_query("events/stream", &[&parameters[..], &topics].concat());
        let mut last = self.after.map(|after| after.to_string());
        let (mut wait, mut has_begun) = (SHORTEST_WAIT, false);
        loop {
            let mut messages = Messages::default();
            let id = last.clone();
            let headers: Vec<_> = id.iter().map(|id| ("Last-Event-ID", id.as_str())).collect();
            let followed = remote.follow(&path, &headers, |piece| {
                (wait, has_begun) = (SHORTEST_WAIT, true);
                messages.receive(piece, |message| {
                    if let Some(id) = &message.id {
                        last = Some(id.clone());
                    }
                    self.show(&message)
                })
            });
            match followed? {
                Some(failure) if !has_begun => return Err(failure),
                Some(failure) => output::note(format_args!("{failure}: trying again")),
                None => output::note("the stream has ended: trying again"),
            }
            std::thread::sleep(wait);
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    fn show(&self, message: &Message) -> Result<(), Failure> {
        if message.data.is_empty() {
            return Ok(());
        }
        match message.event.as_deref() {
            None if draws_tables(self.output.json) => output::print(&line(&message.data)),
            None => output::print(&format!("{}\n", message.data)),
            Some(event) => {
                output::note(format_args!("{event}: {}", message.data));
                Ok(())
            }
        }
    }
}

/// Returns the line for an event: its ledger, contract, name and parameters.
fn line(data: &str) -> String {
    let Ok(event) = serde_json::from_str::<Value>(data) else { return format!("{data}\n") };
    let decoded = &event["decoded"];
    let params = match &decoded["params"] {
        Value::Object(params) => {
            let one = |(name, value): (&String, &Value)| {
                format!("{name}={}", shortened(&grid::cell(value)))
            };
            params.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        _ => shortened(&grid::cell(&decoded["data"])),
    };
    let cell = |value: &Value| grid::cell(value);
    let (ledger, contract) = (cell(&event["ledger"]), cell(&event["contract_id"]));
    let name = decoded["name"].as_str().unwrap_or("-");
    format!("{ledger}  {contract}  {name}  {params}\n")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A message of a stream (html.spec.whatwg.org, section 9.2.6).
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    id: Option<String>,
    event: Option<String>,
    data: String,
}

/// The bytes of a stream that are no whole line yet, and the message that its lines so far make.
#[derive(Default)]
struct Messages {
    rest: Vec<u8>,
    message: Message,
}

impl Messages {
    fn receive(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(Message) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.rest.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[begin..begin + length]);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                each(std::mem::take(&mut self.message))?;
            } else {
                self.message.add(line);
            }
            begin += length + 1;
        }
        self.rest.drain(..begin);
        if self.rest.len() + self.message.data.len() > LONGEST_MESSAGE {
            return Err(Failure::failed("the service sends a message that is too long".to_owned()));
        }
        Ok(())
    }
}

impl Message {
    fn add(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "data" if self.data.is_empty() => self.data.push_str(value),
            "data" => self.data.extend(["\n", value]),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let text = b"retry: 1000\nid: 5\n\nid: 6\r\ndata: {\"a\":1}\r\n\r\n:\nid: 7\n\nevent: gap\nid: 9\ndata: x\ndata:y\n\nid: 10\ndata: cut";
        let message = |id: &str, event: Option<&str>, data: &str| Message {
            id: Some(id.to_owned()),
            event: event.map(str::to_owned),
            data: data.to_owned(),
        };
        let expected = [
            message("5", None, ""),
            message("6", None, "{\"a\":1}"),
            message("7", None, ""),
            message("9", Some("gap"), "x\ny"),
        ];
        for size in 1..text.len() {
            let (mut messages, mut all) = (Messages::default(), Vec::new());
            for piece in text.chunks(size) {
                let received = messages.receive(piece, |message| {
                    all.push(message);
                    Ok(())
                });
                received.unwrap();
            }
            assert_eq!(all, expected, "{size}");
        }
        let mut messages = Messages::default();
        assert!(messages.receive(&vec![b'x'; LONGEST_MESSAGE + 1], |_| Ok(())).is_err());
    }

    #[test]
    fn a_line_has_the_name_and_the_parameters() {
        let event = r#"{"ledger":7,"contract_id":"C","decoded":{"name":"transfer","params":{"to":"G","amount":"5"},"data":null}}"#;
        assert_eq!(line(event), "7  C  transfer  amount=5 to=G\n");
        let unknown = r#"{"ledger":7,"contract_id":"C","decoded":{"name":null,"params":null,"data":{"u32":1}}}"#;
        assert_eq!(line(unknown), "7  C  -  {\"u32\":1}\n");
    }
}
