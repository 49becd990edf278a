//! Parameters in the body of a request: as members of a JSON object, or in the form of a query. They
//! mean the same as in the query, and are for lists that are longer than what proxies accept there.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::ApiError;
use super::call::Body;
use super::params::{Parameters, Query};

/// Media type of a body in the form of a query.
const FORM: &str = "application/x-www-form-urlencoded";

/// Whether a body says that it has the form of a query.
pub(super) fn is_form(body: Body<'_>) -> bool {
    let kind = body.content_type.and_then(|it| it.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(FORM)
}

/// Adds the parameters of a body to those of the query. A body without content has none.
pub(super) fn add<'a>(
    query: &mut Query<'a>,
    body: Body<'a>,
    parameters: Parameters,
) -> Result<(), ApiError> {
    if body.bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    if is_form(body) {
        let text = std::str::from_utf8(body.bytes)
            .map_err(|_| ApiError::body("it is not UTF-8: percent-encode its UTF-8 bytes"))?;
        return query.add(text.trim(), parameters, body.unknown);
    }
    let Object(members) = serde_json::from_slice(body.bytes).map_err(|error| {
        ApiError::body(format!("it is not a JSON object with parameters: {error}"))
    })?;
    for (name, value) in members {
        if let Some(name) = parameters.find(&name, body.unknown)?
            && let Some(text) = text(name, value)?
        {
            query.add_value(name, Cow::Owned(text))?;
        }
    }
    Ok(())
}

/// Returns a value as it is written in a query; `None` for null.
fn text(name: &'static str, value: Value) -> Result<Option<String>, ApiError> {
    let wrong = || ApiError::parameter(name, "is neither a text, a number nor a list of texts");
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Array(values) => {
            let texts = values.into_iter().map(|value| match value {
                Value::String(text) => Ok(text),
                _ => Err(wrong()),
            });
            texts.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        Value::Object(_) => return Err(wrong()),
    }))
}

/// Members of a JSON object in their order, repeated ones included.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use orrery_settings::UnknownParameters;

    const KNOWN: Parameters = Parameters::Known(&["contracts", "limit", "combine"]);

    fn added(query: &str, content_type: Option<&str>, body: &str) -> Result<String, String> {
        let bytes = Bytes::from(body.to_owned());
        let mut query = Query::parse(query, KNOWN, UnknownParameters::Refuse).unwrap();
        add(&mut query, Body::new(&bytes, content_type), KNOWN)
            .map_err(|error| error.to_string())?;
        let of = |name| query.get(name).unwrap_or("-");
        Ok(format!("{} {} {}", of("contracts"), of("limit"), of("combine")))
    }

    #[test]
    fn members_mean_the_same_as_parameters() {
        for (content_type, body, expected) in [
            (None, "", "- 7 -"),
            (Some("application/json"), " {} ", "- 7 -"),
            (None, r#"{"contracts":["A","B"],"combine":true}"#, "A,B 7 true"),
            (None, r#"{"contracts":"A,B","combine":null}"#, "A,B 7 -"),
            (
                Some("application/x-www-form-urlencoded; charset=utf-8"),
                "contracts=A%2CB",
                "A,B 7 -",
            ),
        ] {
            assert_eq!(added("limit=7", content_type, body).unwrap(), expected, "{body}");
        }
        assert_eq!(added("", None, r#"{"limit":12}"#).unwrap(), "- 12 -");
    }

    #[test]
    fn errors_name_the_member() {
        for (body, problem) in [
            ("[]", "it is not a JSON object"),
            ("{\"limit\":1", "it is not a JSON object"),
            (r#"{"limit":1}"#, "'limit' is given more than once"),
            (r#"{"combine":true,"combine":false}"#, "'combine' is given more than once"),
            (r#"{"contrcts":"A"}"#, "no parameter 'contrcts': did you mean 'contracts'?"),
            (r#"{"contracts":[1]}"#, "'contracts' is neither"),
            (r#"{"contracts":{}}"#, "'contracts' is neither"),
        ] {
            let error = added("limit=7", None, body).unwrap_err();
            assert!(error.contains(problem), "{body}: {error}");
        }
        assert!(added("limit=7", Some(FORM), "limit=1").unwrap_err().contains("more than once"));
    }
}
