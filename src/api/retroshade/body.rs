//! What clients send to the routes of programs. Knows JSON and multipart forms, and names what is
//! missing or malformed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use multer::Multipart;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};
use tokio::runtime::Handle;

use super::super::ApiError;
use super::super::router::Call;
use crate::domain::{ContractId, LedgerRange, ParseError, ProgramId, TxHash};
use crate::programs::{Deploy, Trial, TrialOn};
use crate::tables::query::{Format, Numbers, QueryRequest};

/// Transactions that one trial may be run on.
const MOST_TRIED: usize = 100;
/// Transactions that a trial is run on unless it says otherwise.
const TRIED: usize = 10;

/// A module in JSON: an array of numbers, as the command-line client of such services sends it, or
/// base64.
#[derive(Default)]
struct Code(Vec<u8>);

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Code;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of byte numbers or a base64 string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Code, E> {
                STANDARD.decode(text).map(Code).map_err(|_| E::custom("'code' is not base64"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Code, A::Error> {
                let mut code = Vec::new();
                while let Some(byte) = bytes.next_element::<u64>()? {
                    let byte = u8::try_from(byte)
                        .map_err(|_| A::Error::custom("'code' holds a number above 255"))?;
                    code.push(byte);
                }
                Ok(Code(code))
            }
        }
        from.deserialize_any(Either)
    }
}

/// A list of contracts, or one text with commas between them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "'contracts' is neither a list of texts nor one text")]
enum Contracts {
    List(Vec<String>),
    Text(String),
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object with 'code', 'project_name' and 'contracts'")]
struct DeployBody {
    code: Code,
    project_name: String,
    contracts: Contracts,
    #[serde(default)]
    public: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object with 'program_id' and 'contracts'")]
struct AppendBody {
    program_id: u32,
    contracts: Contracts,
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object with 'from' and 'to'")]
struct BackfillBody {
    from: u32,
    to: u32,
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object with 'query'")]
struct QueryBody {
    query: String,
    #[serde(default)]
    params: Vec<serde_json::Value>,
    max_rows: Option<usize>,
    #[serde(default)]
    numbers: Numbers,
    #[serde(default)]
    format: Format,
}

/// Which transactions a trial is run on, beside what a deploy holds.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object with 'code' and 'contracts'")]
struct TrialBody {
    code: Code,
    #[serde(default)]
    project_name: Option<String>,
    contracts: Contracts,
    transactions: Option<Vec<String>>,
    last: Option<usize>,
}

/// `{code, project_name, contracts, public?}`, or the same as the parts of a form.
pub(super) fn deploy(call: &Call<'_>) -> Result<Deploy, ApiError> {
    let body = match form_boundary(call) {
        Some(boundary) => deploy_form(call, boundary)?,
        None => json(call)?,
    };
    let DeployBody { code, project_name, contracts, public } = body;
    Ok(Deploy { code: code.0, project_name, contracts: parse(contracts)?, public })
}

/// `{program_id, contracts}`.
pub(super) fn append(call: &Call<'_>) -> Result<(ProgramId, Vec<ContractId>), ApiError> {
    let AppendBody { program_id, contracts } = json(call)?;
    Ok((ProgramId(program_id), parse(contracts)?))
}

/// `{from, to}`.
pub(super) fn backfill(call: &Call<'_>) -> Result<LedgerRange, ApiError> {
    let BackfillBody { from, to } = json(call)?;
    if from > to {
        return Err(ApiError::body(format!("'from' {from} is after 'to' {to}: exchange them")));
    }
    Ok(LedgerRange::new(from, to))
}

/// `{query}`, and what is additive.
pub(super) fn query(call: &Call<'_>) -> Result<QueryRequest, ApiError> {
    let body: QueryBody = json(call)?;
    Ok(QueryRequest {
        query: body.query,
        params: body.params,
        max_rows: body.max_rows,
        numbers: body.numbers,
        format: body.format,
    })
}

/// A deploy and `transactions` or `last`.
pub(super) fn trial(call: &Call<'_>) -> Result<Trial, ApiError> {
    let body: TrialBody = json(call)?;
    let on = match (body.transactions, body.last) {
        (Some(_), Some(_)) => {
            return Err(ApiError::body("'transactions' and 'last' exclude each other: give one"));
        }
        (Some(hashes), None) => TrialOn::Transactions(hashes_of(&hashes)?),
        (None, last) => match last.unwrap_or(TRIED) {
            0 => return Err(ApiError::body("'last' is 0: give a number from 1 to 100")),
            last => TrialOn::Last(last.min(MOST_TRIED)),
        },
    };
    Ok(Trial {
        deploy: Deploy {
            code: body.code.0,
            project_name: body.project_name.unwrap_or_else(|| "trial".to_owned()),
            contracts: parse(body.contracts)?,
            public: false,
        },
        on,
    })
}

fn hashes_of(texts: &[String]) -> Result<Vec<TxHash>, ApiError> {
    if texts.is_empty() || texts.len() > MOST_TRIED {
        let given = texts.len();
        return Err(ApiError::body(format!(
            "'transactions' holds {given} hashes: give 1 to {MOST_TRIED}"
        )));
    }
    let parse = |text: &String| {
        text.parse().map_err(|error: ParseError| ApiError::body(format!("'transactions': {error}")))
    };
    texts.iter().map(parse).collect()
}

fn parse(contracts: Contracts) -> Result<Vec<ContractId>, ApiError> {
    let texts = match contracts {
        Contracts::List(texts) => texts,
        Contracts::Text(text) => text.split(',').map(str::to_owned).collect(),
    };
    let texts = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let parse = |text: &str| {
        text.parse().map_err(|error: ParseError| ApiError::body(format!("'contracts': {error}")))
    };
    texts.map(parse).collect()
}

fn json<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, ApiError> {
    serde_json::from_slice(call.body).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => error.to_string(),
            _ => format!("it is not JSON: {error}"),
        };
        ApiError::body(problem)
    })
}

fn form_boundary(call: &Call<'_>) -> Option<String> {
    multer::parse_boundary(call.content_type?).ok()
}

/// The parts `code`, `project_name`, `contracts` (repeated or with commas) and `public` of a form.
fn deploy_form(call: &Call<'_>, boundary: String) -> Result<DeployBody, ApiError> {
    let whole = stream::iter([Ok::<_, std::io::Error>(call.body.clone())]);
    let mut form = Multipart::new(whole, boundary);
    // All of the body is there: nothing is waited for.
    Handle::current().block_on(async {
        let (mut code, mut project_name, mut contracts) = (None, None, Vec::new());
        let mut public = false;
        while let Some(field) = form.next_field().await.map_err(broken)? {
            match field.name().unwrap_or_default() {
                "code" => code = Some(Code(field.bytes().await.map_err(broken)?.to_vec())),
                "project_name" => project_name = Some(field.text().await.map_err(broken)?),
                "contracts" => contracts.push(field.text().await.map_err(broken)?),
                "public" => public = field.text().await.map_err(broken)?.trim() == "true",
                _ => {}
            }
        }
        let missing = |part: &str| ApiError::body(format!("the form has no part '{part}': add it"));
        Ok(DeployBody {
            code: code.ok_or_else(|| missing("code"))?,
            project_name: project_name.ok_or_else(|| missing("project_name"))?,
            contracts: Contracts::Text(contracts.join(",")),
            public,
        })
    })
}

fn broken(error: multer::Error) -> ApiError {
    ApiError::body(format!("the form cannot be read: {error}"))
}
