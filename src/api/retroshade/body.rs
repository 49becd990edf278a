//! Parses request bodies of the program routes: which members they have, and what they mean. Leaves
//! their encoding to [`super::super::members`].

use super::super::ApiError;
use super::super::call::Body;
use super::super::members::Members;
use super::selectors;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, ParseError, ProgramId, TxHash};
use orrery_programs::{Deploy, Replace, Trial, TrialSelection, Watch};
use orrery_tables::query::{Format, Numbers, QueryRequest};

/// Maximum number of transactions of one trial.
const MAX_TRIAL_TRANSACTIONS: usize = 100;
/// Maximum number of contract IDs in one request, repeated ones included.
const MAX_CONTRACTS: usize = 1000;
/// Default number of transactions of a trial.
const DEFAULT_TRIAL_TRANSACTIONS: usize = 10;

const NUMBERS: [(&str, Numbers); 3] =
    [("exact", Numbers::Exact), ("string", Numbers::String), ("decimal", Numbers::Decimal)];

const FORMATS: [(&str, Format); 5] = [
    ("rows", Format::Rows),
    ("columns", Format::Columns),
    ("csv", Format::Csv),
    ("parquet", Format::Parquet),
    ("arrow", Format::Arrow),
];

/// Parses `{code, project_name, contracts, public?, replace?, allow_loss?, allow_unfit?}`, as JSON or as a
/// form. With `replace`, the contracts may be left out.
pub(super) fn deploy(body: Body<'_>) -> Result<Deploy, ApiError> {
    let known =
        ["code", "project_name", "contracts", "public", "replace", "allow_loss", "allow_unfit"];
    let body = Members::of_any(body, &known, &["contracts"])?;
    let replace = replace(&body)?;
    let contracts = match replace {
        Replace::No => contracts(&body)?,
        _ => optional_contracts(&body)?.unwrap_or_default(),
    };
    Ok(Deploy {
        code: body.required("code", Members::bytes)?,
        project_name: body.required("project_name", Members::text)?,
        contracts,
        public: body.flag("public")?,
        replace,
        allow_unfit: body.flag("allow_unfit")?.unwrap_or(false),
    })
}

/// Parses `{project_name, contracts?, factories?, created_by?, wasm?, all?, spec?, from?, storage?, public?,
/// replace?, allow_loss?}`. Without `replace`, at least one of those that select contracts is needed.
pub(super) fn watch(body: Body<'_>) -> Result<Watch, ApiError> {
    let known = [
        "project_name",
        "contracts",
        "factories",
        "created_by",
        "wasm",
        "all",
        "spec",
        "from",
        "storage",
        "public",
        "replace",
        "allow_loss",
    ];
    let body = Members::of_json(body, &known)?;
    let (replace, selectors) = (replace(&body)?, selectors::of(&body)?);
    let contracts = optional_contracts(&body)?;
    if contracts.is_none() && selectors.is_empty() && replace == Replace::No {
        return Err(ApiError::body(
            "'contracts' is missing: add it to the body, or select contracts by 'factories', 'created_by', \
             'wasm' or 'all'",
        ));
    }
    Ok(Watch {
        project_name: body.required("project_name", Members::text)?,
        contracts: contracts.unwrap_or_default(),
        selectors,
        supplied: body.interface("spec")?,
        from: body.whole("from")?.map(LedgerSeq),
        storage: body.flag("storage")?,
        public: body.flag("public")?,
        replace,
    })
}

fn replace(body: &Members<'_>) -> Result<Replace, ApiError> {
    let flag = |name| Ok::<_, ApiError>(body.flag(name)?.unwrap_or(false));
    match (flag("replace")?, flag("allow_loss")?) {
        (false, true) => Err(ApiError::body("'allow_loss' is for 'replace': give both")),
        (false, false) => Ok(Replace::No),
        (true, false) => Ok(Replace::WithoutLoss),
        (true, true) => Ok(Replace::AllowingLoss),
    }
}

/// Parses `{program_id, contracts}`.
pub(super) fn append(body: Body<'_>) -> Result<(ProgramId, Vec<ContractId>), ApiError> {
    let body = Members::of_json(body, &["program_id", "contracts"])?;
    Ok((ProgramId(body.required("program_id", Members::whole)?), contracts(&body)?))
}

/// Parses `{project}`.
pub(super) fn project(body: Body<'_>) -> Result<String, ApiError> {
    Members::of_json(body, &["project"])?.required("project", Members::text)
}

/// Parses `{from, to?}`. Without `to`, the range ends at the newest ledger.
pub(super) fn backfill(body: Body<'_>, newest: Option<LedgerSeq>) -> Result<LedgerRange, ApiError> {
    let body = Members::of_json(body, &["from", "to"])?;
    let from = body.required("from", Members::whole)?;
    let to = match (body.whole("to")?, newest) {
        (Some(to), _) => to,
        (None, Some(newest)) if newest.0 < from => {
            let problem = format!("'from' {from} is after the newest ledger, {newest}");
            return Err(ApiError::body(format!("{problem}: give an earlier one")));
        }
        (None, Some(newest)) => newest.0,
        (None, None) => return Err(ApiError::body("no ledger is stored yet: give 'to'")),
    };
    if from > to {
        return Err(ApiError::body(format!("'from' {from} is after 'to' {to}: swap them")));
    }
    Ok(LedgerRange::new(from, to))
}

/// Parses `{query}` and the additive members `params`, `max_rows`, `numbers` and `format`.
pub(super) fn query(body: Body<'_>) -> Result<QueryRequest, ApiError> {
    let known = ["query", "params", "max_rows", "numbers", "format"];
    let body = Members::of_json(body, &known)?;
    Ok(QueryRequest {
        query: body.required("query", Members::text)?,
        params: body.values("params")?.unwrap_or_default(),
        max_rows: body.whole("max_rows")?.map(|most| most as usize),
        numbers: body.choice("numbers", &NUMBERS)?.unwrap_or_default(),
        format: body.choice("format", &FORMATS)?.unwrap_or_default(),
    })
}

/// Parses the members of a deploy, and `transactions` or `last`, as JSON or as a form.
pub(super) fn trial(body: Body<'_>) -> Result<Trial, ApiError> {
    let known = ["code", "project_name", "contracts", "transactions", "last"];
    let body = Members::of_any(body, &known, &["contracts", "transactions"])?;
    let on = match (body.texts("transactions")?, body.whole("last")?) {
        (Some(_), Some(_)) => {
            return Err(ApiError::body("'transactions' and 'last' exclude each other: give one"));
        }
        (Some(hashes), None) => TrialSelection::Transactions(hashes_of(&hashes)?),
        (None, Some(0)) => {
            return Err(ApiError::body("'last' is 0: give a number from 1 to 100"));
        }
        (None, last) => {
            TrialSelection::Last(last.map_or(DEFAULT_TRIAL_TRANSACTIONS, |last| {
                MAX_TRIAL_TRANSACTIONS.min(last as usize)
            }))
        }
    };
    Ok(Trial {
        deploy: Deploy {
            code: body.required("code", Members::bytes)?,
            project_name: body.text("project_name")?.unwrap_or_else(|| "trial".to_owned()),
            contracts: contracts(&body)?,
            public: None,
            replace: Replace::No,
            allow_unfit: true,
        },
        on,
    })
}

fn hashes_of(texts: &[String]) -> Result<Vec<TxHash>, ApiError> {
    if texts.is_empty() || texts.len() > MAX_TRIAL_TRANSACTIONS {
        let given = texts.len();
        return Err(ApiError::body(format!(
            "'transactions' holds {given} hashes: give 1 to {MAX_TRIAL_TRANSACTIONS}"
        )));
    }
    let parse = |text: &String| {
        text.parse().map_err(|error: ParseError| ApiError::body(format!("'transactions': {error}")))
    };
    texts.iter().map(parse).collect()
}

fn contracts(body: &Members<'_>) -> Result<Vec<ContractId>, ApiError> {
    body.required("contracts", |body, _| optional_contracts(body))
}

fn optional_contracts(body: &Members<'_>) -> Result<Option<Vec<ContractId>>, ApiError> {
    let Some(given) = body.texts("contracts")? else { return Ok(None) };
    if given.len() > MAX_CONTRACTS {
        return Err(ApiError::body(format!(
            "'contracts' holds {} contract IDs: give {MAX_CONTRACTS} at the most",
            given.len()
        )));
    }
    let parse = |text: &String| {
        text.parse().map_err(|error: ParseError| ApiError::body(format!("'contracts': {error}")))
    };
    given.iter().map(parse).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use orrery_settings::UnknownParameters;

    fn sentence<T>(read: impl Fn(Body<'_>) -> Result<T, ApiError>, body: &str) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let error = read(Body::new(&body, None)).err().expect("refused");
        assert_eq!(error.status_and_code().1, "bad_request");
        error.to_string()
    }

    #[test]
    fn errors_name_the_member_its_value_and_what_is_expected() {
        for (member, expected) in [
            (r#""max_rows":-1"#, "'max_rows' is -1: give a whole number in decimal digits"),
            (r#""max_rows":1.5"#, "'max_rows' is 1.5: give a whole number"),
            (r#""params":{}"#, "'params' is {}: give a list of values"),
            ("\"params\":{\n\"a\":1}", "'params' is { \"a\":1}: give a list"),
            (r#""numbers":"bad""#, r#"'numbers' is "bad": give "exact" or "string""#),
            (r#""format":"xml""#, r#"'format' is "xml": give "rows" or "columns" or "csv""#),
            (r#""query":7"#, "'query' is 7: give a text"),
            (r#""format":"csv","format":"csv""#, "'format' is given more than once"),
        ] {
            let others = if member.contains("query") { "" } else { r#""query":"select 1","# };
            let error = sentence(query, &format!("{{{others}{member}}}"));
            assert!(error.contains(expected), "{error}");
        }
        for (body, expected) in [
            (r#"{"from":"1","to":2}"#, r#"'from' is "1": give a whole number"#),
            (r#"{"from":3,"to":2}"#, "'from' 3 is after 'to' 2"),
            (r#"{"to":2}"#, "'from' is missing"),
            (r#"{"from":10}"#, "'from' 10 is after the newest ledger, 9"),
            ("[]", "it is not a JSON object: send one, with 'from', 'to'"),
            ("7", "it is not a JSON object"),
            ("", "it is not JSON"),
            (r#"{"from":1,"to":2} x"#, "it is not JSON"),
        ] {
            let error = sentence(|body| backfill(body, Some(LedgerSeq(9))), body);
            assert!(error.contains(expected), "{error}");
        }
        let error = sentence(|body| backfill(body, None), r#"{"from":1}"#);
        assert!(error.contains("no ledger is stored yet"), "{error}");
        for (body, expected) in [
            (r#"{"from":3,"to":null}"#, LedgerRange::new(3, 9)),
            (r#"{"from":9}"#, LedgerRange::new(9, 9)),
            (r#"{"from":3,"to":40}"#, LedgerRange::new(3, 40)),
        ] {
            let bytes = Bytes::copy_from_slice(body.as_bytes());
            let read = backfill(Body::new(&bytes, None), Some(LedgerSeq(9)));
            assert_eq!(read.unwrap(), expected, "{body}");
        }
        let error = sentence(append, r#"{"program_id":"11","contracts":[]}"#);
        assert!(error.contains(r#"'program_id' is "11": give a whole number"#), "{error}");
        for (name, value) in [
            ("code", json!([1, 256])),
            ("code", json!("?")),
            ("project_name", json!(7)),
            ("contracts", json!({ "a": 1 })),
            ("contracts", json!([1])),
            ("public", json!("yes")),
        ] {
            let mut body = json!({ "code": [], "project_name": "p", "contracts": [] });
            body[name] = value.clone();
            let error = sentence(deploy, &body.to_string());
            assert!(error.contains(&format!("'{name}' is {value}: give ")), "{error}");
        }
    }

    /// Members of JSON and parts of forms alike, unless the operator lets them pass.
    #[test]
    fn unknown_members_are_refused_or_ignored() {
        let json =
            Bytes::from_static(br#"{"project_name":"p","contracts":"","code":[],"publik":true}"#);
        let mut form = Vec::new();
        for (name, value) in
            [("project_name", "p"), ("contracts", ""), ("code", ""), ("publik", "1")]
        {
            let head = format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            form.extend_from_slice(format!("{head}{value}\r\n").as_bytes());
        }
        form.extend_from_slice(b"--x--\r\n");
        let (form, runtime) = (Bytes::from(form), tokio::runtime::Runtime::new().unwrap());
        let _within = runtime.enter();
        for (bytes, content_type) in
            [(&json, None), (&form, Some("multipart/form-data; boundary=x"))]
        {
            let body = Body::new(bytes, content_type);
            let Err(refused) = deploy(body) else { panic!("it is taken") };
            assert_eq!(refused.status_and_code().1, "unknown_parameter");
            assert!(refused.to_string().contains("'publik': did you mean 'public'?"), "{refused}");
            assert!(deploy(Body { unknown: UnknownParameters::Ignore, ..body }).is_ok());
        }
        let broken = Bytes::from_static(br#"{"publik":1"#);
        assert!(
            deploy(Body::new(&broken, None)).is_err_and(|it| it.to_string().contains("not JSON"))
        );
    }

    #[test]
    fn contracts_are_counted_before_they_are_parsed() {
        let many =
            |count: usize| json!({ "program_id": 1, "contracts": vec!["x"; count] }).to_string();
        let error = sentence(append, &many(1001));
        assert!(
            error.contains("'contracts' holds 1001 contract IDs: give 1000 at the most"),
            "{error}"
        );
        let error = sentence(append, &many(1000));
        assert!(!error.contains("1000"), "{error}");
    }

    #[test]
    fn base64_code_is_limited_to_the_size_of_a_module() {
        let code = |length: usize| {
            let body = json!({ "code": "A".repeat(length), "project_name": "p", "contracts": [] });
            let body = Bytes::from(body.to_string());
            deploy(Body::new(&body, None)).err()
        };
        assert!(code(3 << 20).is_some_and(|error| error.status_and_code().1 == "body_too_large"));
        assert!(code((2 << 20) / 3 * 4).is_none());
    }

    #[test]
    fn integers_saturate_and_null_counts_as_absent() {
        let body =
            Bytes::from_static(br#"{"query":"x","max_rows":99999999999999999999,"params":null}"#);
        let read = query(Body::new(&body, None)).unwrap();
        assert_eq!((read.max_rows, read.params.len()), (Some(u32::MAX as usize), 0));
        assert_eq!((read.numbers, read.format), (Numbers::Exact, Format::Rows));
    }

    #[test]
    fn query_option_names_match_their_serialised_types() {
        for (word, format) in FORMATS {
            assert_eq!(serde_json::to_value(format).unwrap(), word);
        }
        for (word, numbers) in NUMBERS {
            assert_eq!(serde_json::to_value(numbers).unwrap(), word);
        }
    }
}
