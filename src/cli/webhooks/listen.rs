//! `orrery webhooks listen`: a receiver for development that prints each delivery and whether its
//! signature is valid.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use orrery::service;
use orrery::steady::unix_now;
use orrery::webhooks::signature::{self, SignatureError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::serve::{runtime, stop_on_signal};
use super::super::{Failure, escape, listen_address, output};

/// Maximum size of a body, in bytes; events are far smaller.
const LARGEST_BODY: usize = 4 << 20;
/// Maximum time that a sender may take to send the request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Receive deliveries here, check their signatures, and print one line for each
///
/// For trying webhooks out: any client that knows the address can send to it. Responds with 200 to deliveries
/// signed with the secret, and with 401 to everything else.
#[derive(Debug, Args)]
#[command(after_help = "Example, with a service on the same machine that allows this
(ORRERY_WEBHOOKS_ALLOW_SUBNETS=127.0.0.0/8):
  orrery webhooks listen --listen 127.0.0.1:9100 --secret not-very-secret
  echo not-very-secret | orrery webhooks new --contract CA… --endpoint http://127.0.0.1:9100/ --secret-file -")]
pub struct Listen {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9100",
          value_parser = listen_address)]
    listen: SocketAddr,
    /// The subscription's secret; repeated for each that may sign while it is rotated. Without it signatures are not
    /// checked
    #[arg(
        long = "secret",
        value_name = "SECRET",
        env = "ORRERY_WEBHOOK_SECRET",
        hide_env_values = true
    )]
    secrets: Vec<String>,
    /// Print each delivery as JSON, with its whole body
    #[arg(long)]
    json: bool,
    /// Respond with this status instead, to see how failures are handled
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    answer: Option<u16>,
}

impl Listen {
    pub fn run(self) -> Result<(), Failure> {
        runtime()?.block_on(self.receive())
    }

    async fn receive(self) -> Result<(), Failure> {
        let mut stop = stop_on_signal()?;
        let failed = |error| {
            let reason = service::unusable(&error);
            Failure::failed(format!("cannot listen on {}: {reason}", self.listen))
        };
        let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let checks = match self.secrets.is_empty() {
            false => "",
            true => "; without --secret no signature is checked",
        };
        output::tell(format_args!("listening on http://{address}/{checks}"));
        let listen = Arc::new(self);
        // Receives the message of the first line that cannot be printed, which ends the receiver.
        let (broken, mut breaks) = watch::channel(None);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => return Ok(()),
                _ = breaks.changed() => {
                    return breaks.borrow_and_update().clone().map_or(Ok(()), |it| Err(Failure::failed(it)));
                }
            };
            let Ok((stream, _)) = accepted else {
                // For example when file descriptors have run out.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (listen, broken) = (Arc::clone(&listen), broken.clone());
            let answer = service_fn(move |request| {
                let (listen, broken) = (Arc::clone(&listen), broken.clone());
                async move {
                    let answered = listen.answer(request).await;
                    Ok::<_, Infallible>(answered.unwrap_or_else(|failure| {
                        broken.send_replace(Some(failure.to_string()));
                        reply(StatusCode::INTERNAL_SERVER_ERROR, "the delivery cannot be printed")
                    }))
                }
            });
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                // The sender logs a broken connection itself.
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }

    /// Prints a request as one line, and answers it.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
        if request.method() != Method::POST {
            return Ok(reply(StatusCode::METHOD_NOT_ALLOWED, "deliveries are sent with POST"));
        }
        let (head, body) = request.into_parts();
        let body = Limited::new(body, LARGEST_BODY).collect().await;
        let Ok(body) = body.map(Collected::to_bytes) else {
            return Ok(reply(StatusCode::PAYLOAD_TOO_LARGE, "the body is broken or too large"));
        };
        let checked = check(&self.secrets, &head.headers, &body);
        self.print(&head.headers, &body, &checked)?;
        let refused = matches!(checked, Some(Err(_)));
        Ok(match self.answer.and_then(|status| StatusCode::from_u16(status).ok()) {
            Some(status) => reply(status, "status of --answer"),
            None if refused => reply(StatusCode::UNAUTHORIZED, "the signature is wrong"),
            None => reply(StatusCode::OK, "received"),
        })
    }

    fn print(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        checked: &Option<Result<(), SignatureError>>,
    ) -> Result<(), Failure> {
        let delivery = text_of(headers, signature::DELIVERY).unwrap_or_default();
        let (verified, problem) = match checked {
            None => (None, None),
            Some(Ok(())) => (Some(true), None),
            Some(Err(error)) => (Some(false), Some(error.to_string())),
        };
        if self.json {
            let payload = serde_json::from_slice(body).ok();
            return output::print_json(&Printed { verified, problem, delivery, payload });
        }
        let verdict = match (verified, problem) {
            (_, Some(problem)) => format!("REFUSED ({problem})"),
            (Some(true), None) => "verified".to_owned(),
            _ => "not checked".to_owned(),
        };
        if text_of(headers, CONTENT_TYPE.as_str()).is_some_and(|it| it.starts_with("text/plain")) {
            let message = String::from_utf8_lossy(body);
            let line = format!("{verdict}  {message}  ({delivery})");
            return output::print(&format!("{}\n", escape::control_chars(&line)));
        }
        let payload: Payload<'_> = serde_json::from_slice(body).unwrap_or_default();
        output::print(&format!("{}\n", escape::control_chars(&line(&verdict, delivery, &payload))))
    }
}

/// A delivery as printed with `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    verified: Option<bool>,
    problem: Option<String>,
    delivery: &'a str,
    /// The body as received; `None` when it is not JSON.
    payload: Option<&'a RawValue>,
}

/// Fields of a payload that a line shows. Values of contracts stay unparsed: they may nest deeper
/// than the JSON parser allows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    event: Event<'a>,
    /// What is no event, by the names of its members.
    #[serde(borrow)]
    trigger: Option<BTreeMap<String, &'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event<'a> {
    contract_id: Value,
    id: Value,
    ledger: Value,
    name: Value,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Body<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    v0: BodyV0<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BodyV0<'a> {
    #[serde(borrow)]
    topics: Vec<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Formats a delivery as one line: verdict, ledger and id of the event, contract, and its name and
/// values where its contract declares them, otherwise topics and data.
fn line(verdict: &str, delivery: &str, payload: &Payload<'_>) -> String {
    if let Some(members) = &payload.trigger {
        return of_trigger(verdict, delivery, members);
    }
    let Event { contract_id, id, ledger, name, params, body } = &payload.event;
    let plain = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let [contract, id, ledger] = [contract_id, id, ledger].map(plain);
    let event = |what: &str| {
        format!("{verdict}  ledger {ledger}  event {id}  {contract}  {what}  ({delivery})")
    };
    if let (Value::String(name), Some(params)) = (name, params) {
        return event(&format!("{name} {}", params.get()));
    }
    let topics = body.v0.topics.iter().map(|topic| without_type(topic.get()));
    let topics = topics.collect::<Vec<_>>().join(" ");
    let data = body.v0.data.map_or("null".to_owned(), |data| without_type(data.get()));
    event(&format!("[{topics}]  {data}"))
}

/// Formats what is no event as one line: verdict, ledger, what it is about, contract, and its other members.
fn of_trigger(verdict: &str, delivery: &str, members: &BTreeMap<String, &RawValue>) -> String {
    const SHOWN: [&str; 5] =
        ["on", "contract_id", "ledger", "ledger_closed_at", "application_order"];
    let text = |name: &str| {
        let raw = members.get(name).map_or("null", |value| value.get());
        let text = serde_json::from_str::<Value>(raw).unwrap_or_default();
        match text {
            Value::Null => "-".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        }
    };
    let others = members.iter().filter(|(name, _)| !SHOWN.contains(&name.as_str()));
    let others: Vec<_> = others.map(|(name, value)| format!("{name} {}", value.get())).collect();
    let [on, contract, ledger] = ["on", "contract_id", "ledger"].map(text);
    format!("{verdict}  ledger {ledger}  {on}  {contract}  {}  ({delivery})", others.join(", "))
}

/// Formats a decoded value, without the name of its type when it is a single string, number or
/// Boolean.
pub fn without_type(text: &str) -> String {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    let single = members.values().next().filter(|_| members.len() == 1).map(|inner| inner.get());
    match single.map(|inner| (inner, serde_json::from_str(inner))) {
        Some((_, Ok(Value::String(inner)))) => inner,
        Some((inner, Ok(Value::Number(_) | Value::Bool(_)))) => inner.to_owned(),
        _ => text.to_owned(),
    }
}

/// Checks a delivery with each of the secrets. Returns the failure of the first one if none fits; `None`
/// without secrets.
fn check(
    secrets: &[String],
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Result<(), SignatureError>> {
    let check = |secret: &String| {
        signature::verify(secret, |name| text_of(headers, name), body, unix_now())
    };
    let first = check(secrets.first()?);
    let fits = first.is_ok() || secrets.iter().skip(1).any(|secret| check(secret).is_ok());
    Some(if fits { Ok(()) } else { first })
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn reply(status: StatusCode, sentence: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(sentence.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_summarises_an_event() {
        let payload = serde_json::json!({
            "event": {
                "ext": "v0", "contract_id": "CA…", "type_": "contract", "id": 7, "ledger": 42,
                "body": {"v0": {
                    "topics": [{"symbol": "transfer"}, {"address": "GA…"}, {"vec": [{"u32": 1}]}],
                    "data": {"i128": "340282366920938463463"},
                }},
            },
            "tx_hash": "00",
        })
        .to_string();
        let payload = serde_json::from_str(&payload).unwrap();
        assert_eq!(
            line("verified", "d1", &payload),
            "verified  ledger 42  event 7  CA…  [transfer GA… {\"vec\":[{\"u32\":1}]}]  \
             340282366920938463463  (d1)"
        );
        let named = "{\"event\":{\"contract_id\":\"CA…\",\"id\":7,\"ledger\":42,\"name\":\"filled\",\"params\":{\"id\":\"9\"}}}";
        let named = serde_json::from_str(named).unwrap();
        assert_eq!(
            line("verified", "d1", &named),
            "verified  ledger 42  event 7  CA…  filled {\"id\":\"9\"}  (d1)"
        );
        let silent = "{\"trigger\":{\"on\":\"silence\",\"contract_id\":\"CA…\",\"ledger\":42,\"since_ledger\":7}}";
        let silent = serde_json::from_str(silent).unwrap();
        assert_eq!(
            line("verified", "d1", &silent),
            "verified  ledger 42  silence  CA…  since_ledger 7  (d1)"
        );
        let nothing = Payload::default();
        assert_eq!(line("x", "", &nothing), "x  ledger -  event -  -  []  null  ()");
    }

    #[test]
    fn a_line_shows_values_nested_beyond_the_json_limit() {
        let deep = "{\"vec\":[".repeat(300) + "\"void\"" + &"]}".repeat(300);
        let body = format!(
            "{{\"event\":{{\"id\":7,\"body\":{{\"v0\":{{\"topics\":[],\"data\":{deep}}}}}}}}}"
        );
        let payload = serde_json::from_str(&body).unwrap();
        assert_eq!(line("x", "d", &payload), format!("x  ledger -  event 7  -  []  {deep}  (d)"));
        assert_eq!(serde_json::from_str::<&RawValue>(&body).unwrap().get(), body);
    }
}
