//! Request parameters: percent-decoding, names, and the value types that several routes share. Does
//! not depend on routes or HTTP.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::ApiError;
use orrery_ledger::domain::{
    ContractId, LedgerRange, TxHash, address_xdr, excerpt, scval_from_text,
};
use orrery_settings::UnknownParameters;

/// Maximum number of contracts in one request.
pub(super) const MAX_CONTRACTS: usize = 200;

/// Maximum number of topic values in one request.
pub(super) const MAX_TOPICS: usize = 16;

/// Names of the parameter with contracts, which are understood for each other: each route has one of
/// them at the most.
const CONTRACTS: [&str; 3] = ["contracts", "contract", "contract_id"];

/// How similar a known name must be to an unknown one to be suggested for it, from 0 to 1.
const LIKENESS: f64 = 0.5;

/// Query parameters of a route.
#[derive(Debug, Clone, Copy)]
pub(super) enum Parameters {
    /// These and no others.
    Known(&'static [&'static str]),
    /// These; any others are ignored, whatever the settings say.
    Chosen(&'static [&'static str]),
    /// None; any are ignored. For routes that are called by programs and through links which add
    /// parameters of their own: probes, metrics, pages of the site and JSON-RPC.
    Ignored,
}

impl Parameters {
    /// Returns the known name that equals `name`; `None` for one that is ignored.
    pub(super) fn find(
        self,
        name: &str,
        unknown: UnknownParameters,
    ) -> Result<Option<&'static str>, ApiError> {
        match self {
            Self::Known(known) => find_name(name, known, unknown),
            Self::Chosen(known) => find_name(name, known, UnknownParameters::Ignore),
            Self::Ignored => Ok(None),
        }
    }
}

/// Returns the name in `known` that equals `name`; `None` for one that is ignored.
pub(super) fn find_name(
    name: &str,
    known: &[&'static str],
    unknown: UnknownParameters,
) -> Result<Option<&'static str>, ApiError> {
    let is_meant =
        |known: &str| known == name || CONTRACTS.contains(&known) && CONTRACTS.contains(&name);
    match (known.iter().copied().find(|known| is_meant(known)), unknown) {
        (None, UnknownParameters::Refuse) => Err(unknown_name(name, known)),
        (found, _) => Ok(found),
    }
}

/// Parameters of a query that its route has.
#[derive(Debug, Clone)]
pub(super) struct Query<'a> {
    values: Vec<(&'static str, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Parses a raw query. A known parameter that is repeated, or whose value is not UTF-8, is
    /// refused.
    pub(super) fn parse(
        raw: &'a str,
        parameters: Parameters,
        unknown: UnknownParameters,
    ) -> Result<Self, ApiError> {
        let mut query = Self { values: Vec::new() };
        query.add(raw, parameters, unknown)?;
        Ok(query)
    }

    /// Adds the parameters of a text in the form of a query.
    pub(super) fn add(
        &mut self,
        raw: &'a str,
        parameters: Parameters,
        unknown: UnknownParameters,
    ) -> Result<(), ApiError> {
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = form_decode(raw_name).unwrap_or(Cow::Borrowed(raw_name));
            if let Some(name) = parameters.find(&name, unknown)? {
                let value = form_decode(raw_value).map_err(|NotUtf8| not_utf8(name))?;
                self.add_value(name, value)?;
            }
        }
        Ok(())
    }

    /// Adds a parameter, which must not be given already.
    pub(super) fn add_value(
        &mut self,
        name: &'static str,
        value: Cow<'a, str>,
    ) -> Result<(), ApiError> {
        if self.get(name).is_some() {
            return Err(ApiError::parameter(name, "is given more than once: give it once"));
        }
        self.values.push((name, value));
        Ok(())
    }

    /// Returns the value of a parameter; `None` when it is not given.
    pub(super) fn get(&self, name: &'static str) -> Option<&str> {
        self.values.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_ref())
    }

    /// Parses a whole number; `None` when it is not given. Numbers above `most` become `most`.
    pub(super) fn number(&self, name: &'static str, most: u64) -> Result<Option<u64>, ApiError> {
        self.get(name).map(|text| number(name, text, most)).transpose()
    }

    /// Parses `limit` for a list with a default and a maximum of its own; larger values become
    /// `most`.
    pub(super) fn limit(&self, default: usize, most: usize) -> Result<usize, ApiError> {
        match self.number("limit", most as u64)? {
            None => Ok(default),
            Some(0) => {
                Err(ApiError::parameter("limit", format!("is 0: give a number from 1 to {most}")))
            }
            Some(given) => Ok(usize::try_from(given).unwrap_or(most)),
        }
    }

    /// Parses one of the given words; `None` when it is not given.
    pub(super) fn word<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let choice: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let choice = choice.join(" or ");
            ApiError::parameter(name, format!("is '{}': give {choice}", excerpt(text)))
        })
    }

    /// Parses the ledger range from `from` to `to`, both inclusive; `None` when neither is given.
    pub(super) fn ledgers(&self) -> Result<Option<LedgerRange>, ApiError> {
        let ledger = |name| -> Result<Option<u32>, ApiError> {
            let saturated = self.number(name, u64::from(u32::MAX))?;
            Ok(saturated.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
        };
        Ok(match (ledger("from")?, ledger("to")?) {
            (None, None) => None,
            (from, to) => Some(LedgerRange::new(from.unwrap_or(0), to.unwrap_or(u32::MAX))),
        })
    }

    /// Parses the comma-separated contract IDs of `contracts`, which is required.
    pub(super) fn contracts(&self) -> Result<Vec<ContractId>, ApiError> {
        self.contracts_if_given()?.ok_or_else(|| {
            ApiError::parameter("contracts", "is missing: give contract IDs separated by commas")
        })
    }

    /// Parses the comma-separated contract IDs of `contracts`; `None` when it is not given.
    pub(super) fn contracts_if_given(&self) -> Result<Option<Vec<ContractId>>, ApiError> {
        const NAME: &str = "contracts";
        let Some(text) = self.get(NAME) else { return Ok(None) };
        let text = text.strip_suffix(',').unwrap_or(text);
        let given = text.split(',').count();
        if given > MAX_CONTRACTS {
            return Err(too_many(NAME, given, MAX_CONTRACTS));
        }
        let parse =
            |id: &str| id.parse().map_err(|error| ApiError::parameter(NAME, malformed(error)));
        let mut contracts: Vec<ContractId> =
            text.split(',').map(parse).collect::<Result<_, _>>()?;
        contracts.sort_unstable();
        contracts.dedup();
        Ok(Some(contracts))
    }

    /// Parses an address into the XDR of its `ScVal`; `None` when it is not given.
    pub(super) fn address(&self, name: &'static str) -> Result<Option<Vec<u8>>, ApiError> {
        let parse =
            |text| address_xdr(text).map_err(|error| ApiError::parameter(name, malformed(error)));
        self.get(name).map(parse).transpose()
    }

    /// Parses the comma-separated topic values of `topics` into XDR; empty when it is not given.
    pub(super) fn topics(&self) -> Result<Vec<Vec<u8>>, ApiError> {
        const NAME: &str = "topics";
        let Some(text) = self.get(NAME) else { return Ok(Vec::new()) };
        let given = text.split(',').count();
        if given > MAX_TOPICS {
            return Err(too_many(NAME, given, MAX_TOPICS));
        }
        text.split(',').map(|value| scval(NAME, value)).collect()
    }

    /// Parses one topic value into XDR; `None` when it is not given.
    pub(super) fn topic(&self, name: &'static str) -> Result<Option<Vec<u8>>, ApiError> {
        self.get(name).map(|text| scval(name, text)).transpose()
    }
}

/// Parses a contract ID in the path.
pub(super) fn path_contract(raw: &str) -> Result<ContractId, ApiError> {
    const NAME: &str = "contract_id";
    path_value(NAME, raw)?.parse().map_err(|error| ApiError::parameter(NAME, malformed(error)))
}

/// Parses an address in the path into the XDR of its `ScVal`.
pub(super) fn path_address(raw: &str) -> Result<Vec<u8>, ApiError> {
    const NAME: &str = "address";
    address_xdr(&path_value(NAME, raw)?)
        .map_err(|error| ApiError::parameter(NAME, malformed(error)))
}

/// Parses a transaction hash in the path.
pub(super) fn path_hash(raw: &str) -> Result<TxHash, ApiError> {
    const NAME: &str = "tx_hex";
    path_value(NAME, raw)?.parse().map_err(|error| ApiError::parameter(NAME, malformed(error)))
}

/// Parses a whole number in the path; larger ones become `u32::MAX`.
pub(super) fn path_number(name: &'static str, raw: &str) -> Result<u32, ApiError> {
    let number = number(name, &path_value(name, raw)?, u64::from(u32::MAX))?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Parses the id of an event in the path; larger numbers become `u64::MAX`.
pub(super) fn path_id(raw: &str) -> Result<u64, ApiError> {
    const NAME: &str = "id";
    number(NAME, &path_value(NAME, raw)?, u64::MAX)
}

fn path_value<'a>(name: &'static str, raw: &'a str) -> Result<Cow<'a, str>, ApiError> {
    percent_decode_str(raw).decode_utf8().map_err(|_| not_utf8(name))
}

/// Parses decimal digits and nothing else; numbers above `most` become `most`.
fn number(name: &'static str, text: &str, most: u64) -> Result<u64, ApiError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem = format!("is '{}': give a whole number in decimal digits", excerpt(text));
        return Err(ApiError::parameter(name, problem));
    }
    // Only a number that is too large fails to parse here.
    Ok(text.parse().unwrap_or(u64::MAX).min(most))
}

/// Returns the XDR of the `ScVal` that a text stands for.
fn scval(name: &'static str, text: &str) -> Result<Vec<u8>, ApiError> {
    scval_from_text(text).map_err(|error| ApiError::parameter(name, error.to_string()))
}

/// Returns the error for a name that the route does not have.
fn unknown_name(name: &str, known: &[&str]) -> ApiError {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(known, name);
    let begins = |known: &str| !name.is_empty() && known.starts_with(name);
    let score = |it: &str| likeness(it) + f64::from(u8::from(begins(it)));
    // The first of several that are as near.
    let nearest = known.iter().copied().min_by(|a, b| score(b).total_cmp(&score(a)));
    let mend = match nearest.filter(|it| score(it) >= LIKENESS) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None if known.is_empty() => "give none".to_owned(),
        None => format!("give '{}'", known.join("', '")),
    };
    ApiError::UnknownParameter { name: excerpt(name), mend }
}

struct NotUtf8;

/// Decodes a name or value of a query: `+` is a space, `%XX` a byte.
fn form_decode(raw: &str) -> Result<Cow<'_, str>, NotUtf8> {
    if !raw.contains('+') {
        return percent_decode_str(raw).decode_utf8().map_err(|_| NotUtf8);
    }
    let spaced = raw.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| NotUtf8)?;
    Ok(Cow::Owned(decoded.into_owned()))
}

fn not_utf8(name: &'static str) -> ApiError {
    ApiError::parameter(name, "is not UTF-8: percent-encode its UTF-8 bytes")
}

fn too_many(name: &'static str, given: usize, most: usize) -> ApiError {
    ApiError::parameter(name, format!("holds {given} values: give {most} at the most"))
}

/// Continues "parameter 'x' …" with the message of a parse error.
fn malformed(error: orrery_ledger::domain::ParseError) -> String {
    format!("is malformed: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
    // ScVal::Symbol("transfer")
    const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";

    fn parse<'a>(raw: &'a str, known: &'static [&'static str]) -> Result<Query<'a>, ApiError> {
        Query::parse(raw, Parameters::Known(known), UnknownParameters::Refuse)
    }

    fn query<'a>(raw: &'a str, known: &'static [&'static str]) -> Query<'a> {
        parse(raw, known).unwrap()
    }

    fn problem(result: Result<impl std::fmt::Debug, ApiError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn unknown_parameters_are_refused_with_the_nearest_name() {
        const KNOWN: &[&str] = &["limit", "offset", "contract_id", "topics", "topic1"];
        for (raw, mend) in [
            ("limt=1", "did you mean 'limit'?"),
            ("LIMIT=1", "give 'limit', 'offset', 'contract_id', 'topics', 'topic1'"),
            ("offset=1&contrct=C", "did you mean 'contract_id'?"),
            ("topic=x", "did you mean 'topics'?"),
            ("topic_1=x", "did you mean 'topic1'?"),
            ("zzz", "give 'limit', "),
            ("=5", "give 'limit', "),
            ("%FF=4", "give 'limit', "),
        ] {
            let refused = parse(raw, KNOWN).unwrap_err();
            assert_eq!(refused.status_and_code().1, "unknown_parameter", "{raw}");
            assert!(refused.to_string().contains(mend), "{raw}: {refused}");
        }
        assert!(problem(parse("x=1", &[])).contains("'x': give none"));
        assert!(problem(parse(&"x".repeat(5000), KNOWN)).len() < 300);
        assert!(parse("&&limit=1&", KNOWN).is_ok(), "empty pairs name nothing");
        assert!(Query::parse("x=1", Parameters::Ignored, UnknownParameters::Refuse).is_ok());
    }

    /// A route has one of them; two are two values of one parameter.
    #[test]
    fn names_of_contracts_are_understood_for_each_other() {
        for known in [&["contracts"], &["contract_id"]] {
            for given in CONTRACTS {
                let raw = format!("{given}={CONTRACT}");
                assert_eq!(query(&raw, known).get(known[0]), Some(CONTRACT), "{given}");
                for second in CONTRACTS {
                    let refused = problem(parse(&format!("{raw}&{second}={CONTRACT}"), known));
                    assert!(refused.contains("more than once"), "{given} {second}: {refused}");
                }
            }
        }
        assert!(problem(parse("contract=x", &["limit"])).contains("no parameter 'contract'"));
    }

    #[test]
    fn unknown_parameters_may_be_ignored() {
        let raw = "x=1&limit=2&x=3&%FF=4&&=5&of%66set=%36+";
        let known = Parameters::Known(&["limit", "offset"]);
        let query = Query::parse(raw, known, UnknownParameters::Ignore).unwrap();
        assert_eq!(query.get("limit"), Some("2"));
        assert_eq!(query.get("offset"), Some("6 "));
        assert_eq!(query.values.len(), 2);
    }

    #[test]
    fn refuses_repeated_and_undecodable_parameters_by_name() {
        for raw in ["limit=1&limit=1", "limit=1&l%69mit=2", "limit&limit=1"] {
            assert!(problem(parse(raw, &["limit"])).contains("'limit' is given more than"));
        }
        for raw in ["limit=%FF", "limit=1%C3", "limit=%ED%A0%80"] {
            assert!(problem(parse(raw, &["limit"])).contains("'limit' is not UTF-8"));
        }
    }

    #[test]
    fn numbers_are_digits_and_saturate() {
        let parse = |text: &str| number("n", text, 1000).map_err(|error| error.to_string());
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("007", 7),
            ("1000", 1000),
            ("1001", 1000),
            (&"9".repeat(5000), 1000),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        for text in ["", " ", " 1", "1 ", "+1", "-1", "1.0", "1e3", "0x10", "a", "١", "null", "1,2"]
        {
            assert!(parse(text).unwrap_err().starts_with("parameter 'n' is '"), "{text}");
        }
    }

    #[test]
    fn ledger_ranges_may_be_half_open_and_saturate() {
        let ledgers = |raw| query(raw, &["from", "to"]).ledgers();
        let last = u32::MAX;
        assert_eq!(ledgers("").unwrap(), None);
        assert_eq!(ledgers("from=5").unwrap(), Some(LedgerRange::new(5, last)));
        assert_eq!(ledgers("to=5").unwrap(), Some(LedgerRange::new(0, 5)));
        assert_eq!(
            ledgers("from=99999999999999999999&to=4294967296").unwrap(),
            Some(LedgerRange::only(last))
        );
        assert!(ledgers("from=9&to=5").unwrap().unwrap().is_empty());
        assert!(problem(ledgers("from=&to=5")).contains("'from'"));
        assert!(problem(ledgers("to=x")).contains("'to'"));
    }

    #[test]
    fn contracts_tolerate_one_trailing_comma() {
        let contracts = |value: &str| {
            let raw = format!("contracts={value}");
            query(&raw, &["contracts"]).contracts()
        };
        assert_eq!(contracts(CONTRACT).unwrap().len(), 1);
        assert_eq!(contracts(&format!("{CONTRACT},")).unwrap().len(), 1);
        assert_eq!(contracts(&format!("{CONTRACT},{CONTRACT}")).unwrap().len(), 1);
        assert_eq!(contracts(&format!("{CONTRACT}%2C{CONTRACT}")).unwrap().len(), 1);
        for bad in ["", ",", &format!(",{CONTRACT}"), &format!("{CONTRACT},,"), "C", "%20"] {
            assert!(problem(contracts(bad)).contains("'contracts'"), "{bad}");
        }
        assert!(problem(query("", &["contracts"]).contracts()).contains("is missing"));
        assert!(contracts(&vec![CONTRACT; 200].join(",")).is_ok());
        assert!(problem(contracts(&vec![CONTRACT; 201].join(","))).contains("201 values"));
    }

    #[test]
    fn topics_are_one_scval_each() {
        let topics = |value: &str| {
            let raw = format!("topics={value}");
            query(&raw, &["topics"]).topics()
        };
        let transfer = topics(TRANSFER).unwrap();
        assert_eq!(transfer[0].len(), 16);
        assert_eq!(
            topics(TRANSFER.trim_end_matches('=')).unwrap(),
            transfer,
            "padding is optional"
        );
        for written in ["transfer", "symbol:transfer", "symbol%3Atransfer"] {
            assert_eq!(topics(written).unwrap(), transfer, "{written}");
        }
        let several = topics(&format!("{TRANSFER},{CONTRACT},u64:5,string:a+b%2Bc")).unwrap();
        assert_eq!(several.len(), 4);
        assert_eq!(several[3][8..], *b"a b+c\0\0\0", "a blank is no plus in a written value");
        // ScVal::U32(0xfb) holds a '+' when encoded: sent raw, escaped and as a blank.
        for value in ["AAAAAwAAAPs+", "AAAAAwAA+/s=", "AAAAAwAA%2B/s=", "AAAAAwAA%20/s="] {
            assert_eq!(topics(value).is_ok(), value.len() > 12 || value.ends_with("s="), "{value}");
        }
        for bad in [
            "",
            ",",
            &format!("{TRANSFER},"),
            "!",
            "_-",
            "a b",
            "u32:x",
            "u32:1,u32:",
            "AAAADwAAAAh0cmFuc2ZlcgAAAAA=",
        ] {
            assert!(problem(topics(bad)).contains("'topics'"), "{bad}");
        }
        assert!(topics(&vec![TRANSFER; 16].join(",")).is_ok());
        assert!(problem(topics(&vec![TRANSFER; 17].join(","))).contains("17 values"));
    }

    #[test]
    fn path_values_are_decoded() {
        assert!(path_contract(CONTRACT).is_ok());
        assert!(path_contract(&CONTRACT.replace('C', "%43")).is_ok());
        assert!(problem(path_contract("%FF")).contains("'contract_id' is not UTF-8"));
        assert!(problem(path_contract(&CONTRACT.to_lowercase())).contains("'contract_id'"));
        let hash = "Ab".repeat(32);
        assert_eq!(path_hash(&hash).unwrap(), path_hash(&format!("0x{hash}")).unwrap());
        assert!(problem(path_hash("0x")).contains("'tx_hex'"));
        assert_eq!(path_number("id", "%31").unwrap(), 1);
        for large in ["4294967295", "4294967296", "99999999999999999999"] {
            assert_eq!(path_number("id", large).unwrap(), u32::MAX);
        }
        for bad in ["x", "-1", "%FF", "1.0", "+1", "0x1", " 1"] {
            assert!(problem(path_number("id", bad)).contains("'id' is"), "{bad}");
        }
    }
}
