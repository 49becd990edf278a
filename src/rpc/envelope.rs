//! Request and response envelopes of JSON-RPC 2.0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Json, Params, RpcError};

/// Content of a request body.
#[derive(Debug)]
pub enum Request<'a> {
    /// A single call.
    Single(Call<'a>),
    /// A batch of calls, in order.
    Batch(Vec<Call<'a>>),
}

/// One call, or the reason why it is invalid.
#[derive(Debug)]
pub struct Call<'a> {
    /// The id as received: a string or a number. `None` for a notification, which gets no response.
    pub id: Option<&'a RawValue>,
    /// Method and parameters, or the error if this is not a valid call.
    pub content: Result<(String, Params<'a>), RpcError>,
}

/// Outcome of a call.
#[derive(Debug)]
pub enum Reply {
    /// The result.
    Result(Json),
    /// An error of this service.
    Error(RpcError),
    /// The `error` object of an upstream server, unchanged.
    UpstreamError(Box<RawValue>),
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    /// `null` where the id is not known.
    id: Option<&'a RawValue>,
    error: Error<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Error<'a> {
    Own(&'a RpcError),
    Others(&'a RawValue),
}

impl<'a> Request<'a> {
    /// Parses a body; a batch may have at most `most_calls` calls.
    ///
    /// # Errors
    /// The error to respond with when the body holds no call.
    pub fn read(body: &'a [u8], most_calls: usize) -> Result<Self, RpcError> {
        let unparsable = || RpcError::unparsable("invalid request value");
        let value: &RawValue = serde_json::from_slice(body).map_err(|_| unparsable())?;
        if !value.get().starts_with('[') {
            return Ok(Self::Single(Call::read(value)));
        }
        let calls: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| unparsable())?;
        if calls.len() > most_calls {
            let why = format!("a batch has at most {most_calls} calls");
            return Err(RpcError::invalid_request(why));
        }
        Ok(Self::Batch(calls.into_iter().map(Call::read).collect()))
    }
}

impl<'a> Call<'a> {
    fn read(value: &'a RawValue) -> Self {
        let members: Members<'a> = match serde_json::from_str(value.get()) {
            Ok(members) => members,
            Err(_) => {
                let content = Err(RpcError::unparsable("request is not a JSON object"));
                // It gets a response, since it may not have been a notification.
                return Self { id: Some(RawValue::NULL), content };
            }
        };
        let (id, id_is_wrong) = match members.get("id").copied() {
            None => (None, false),
            Some(id) if id.get() == "null" => (None, false),
            Some(id) if is_id(id) => (Some(id), false),
            Some(_) => (None, true),
        };
        let content = if id_is_wrong {
            Err(RpcError::invalid_request("invalid request ID"))
        } else {
            content(members)
        };
        let needs_error_response = id.is_none() && content.is_err();
        Self { id: if needs_error_response { Some(RawValue::NULL) } else { id }, content }
    }

    /// Returns whether the call is a notification, which gets no response.
    pub fn is_notification(&self) -> bool {
        self.id.is_none()
    }

    /// Serialises the response to the call.
    ///
    /// # Errors
    /// Fails when the response cannot be serialised as JSON.
    pub fn answer(&self, reply: &Reply) -> Result<Vec<u8>, RpcError> {
        serialize_response(self.id, reply)
    }
}

/// Serialises an error response with a null id, for a body without a valid call.
///
/// # Errors
/// Fails when the response cannot be serialised as JSON.
pub fn error_without_id(error: RpcError) -> Result<Vec<u8>, RpcError> {
    serialize_response(None, &Reply::Error(error))
}

fn serialize_response(id: Option<&RawValue>, reply: &Reply) -> Result<Vec<u8>, RpcError> {
    let error = match reply {
        // A result may be long and is JSON already, so it is not parsed again.
        Reply::Result(result) => {
            let id = id.map_or("null", RawValue::get);
            let parts = [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result.get(), "}"];
            return Ok(parts.concat().into_bytes());
        }
        Reply::Error(error) => Error::Own(error),
        Reply::UpstreamError(error) => Error::Others(error),
    };
    Ok(serde_json::to_vec(&Failure { jsonrpc: "2.0", id, error })?)
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

fn is_id(value: &RawValue) -> bool {
    matches!(serde_json::from_str(value.get()), Ok(Value::String(_) | Value::Number(_)))
}

/// Reads method and parameters, checking the members in the same order as Stellar RPC.
fn content<'a>(mut members: Members<'a>) -> Result<(String, Params<'a>), RpcError> {
    let text = |value: &RawValue| String::deserialize(value).ok();
    members.remove("id");
    match members.remove("jsonrpc") {
        None => return Err(RpcError::invalid_request("invalid version marker")),
        Some(version) => match text(version) {
            None => return Err(RpcError::unparsable("invalid version key")),
            Some(version) if version != "2.0" => {
                return Err(RpcError::invalid_request("invalid version marker"));
            }
            Some(_) => {}
        },
    }
    let is_reply = members.contains_key("result") || members.contains_key("error");
    let method = match members.remove("method").map(text) {
        Some(Some(method)) if is_reply && !method.is_empty() => {
            return Err(RpcError::invalid_request("mixed request and reply fields"));
        }
        Some(Some(method)) if !method.is_empty() => method,
        None | Some(Some(_)) => return Err(RpcError::invalid_request("empty method name")),
        Some(None) => return Err(RpcError::unparsable("invalid method name")),
    };
    let params = members.remove("params");
    if params.is_some_and(|params| !params.get().starts_with(['{', '[']) && params.get() != "null")
    {
        return Err(RpcError::invalid_request("parameters must be array or object"));
    }
    if !members.is_empty() {
        let names: Vec<_> =
            members.keys().map(|name| orrery_ledger::domain::excerpt(name)).collect();
        return Err(RpcError::invalid_request("extra fields in request").about(&names.join(",")));
    }
    Ok((method, Params(params)))
}
