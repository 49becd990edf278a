//! Parses what selects the contracts of a project beside those that it names.

use serde::Deserialize;

use super::super::ApiError;
use super::super::members::Members;
use orrery_ledger::domain::{Hash32, excerpt};
use orrery_programs::{CreatorAddress, FactorySelector, Selectors};

/// Digits of the hash of a module.
const HASH_DIGITS: usize = 64;

/// Parses `{factories?, created_by?, wasm?, all?}`.
pub(super) fn of(body: &Members<'_>) -> Result<Selectors, ApiError> {
    let factories = body.values("factories")?.unwrap_or_default();
    let created_by = body.texts("created_by")?.unwrap_or_default();
    let wasm = body.texts("wasm")?.unwrap_or_default();
    Ok(Selectors {
        factories: factories.iter().map(factory).collect::<Result<_, _>>()?,
        created_by: created_by.iter().map(|text| creator(text)).collect::<Result<_, _>>()?,
        wasm: wasm.iter().map(|text| hash(text)).collect::<Result<_, _>>()?,
        all: body.texts("all")?.unwrap_or_default(),
    })
}

fn factory(given: &serde_json::Value) -> Result<FactorySelector, ApiError> {
    FactorySelector::deserialize(given).map_err(|error| {
        ApiError::body(format!(
            "'factories' has {}, which is none ({error}): give objects with 'contract', 'event' and 'param'",
            excerpt(&given.to_string())
        ))
    })
}

fn creator(text: &str) -> Result<CreatorAddress, ApiError> {
    text.parse().map_err(|error| ApiError::body(format!("'created_by': {error}")))
}

fn hash(text: &str) -> Result<Hash32, ApiError> {
    let parsed = text.parse().ok().filter(|_| text.len() == HASH_DIGITS);
    parsed.ok_or_else(|| {
        ApiError::body(format!(
            "'wasm' has '{}': give the SHA-256 of a module, {HASH_DIGITS} hexadecimal digits",
            excerpt(text)
        ))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::super::call::Body;
    use super::*;
    use orrery_ledger::domain::ContractId;

    fn read(body: &str) -> Result<Selectors, ApiError> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let known = ["factories", "created_by", "wasm", "all"];
        of(&Members::of_json(Body::new(&body, None), &known)?)
    }

    #[test]
    fn selectors_are_read_or_refused_with_a_sentence() {
        let (contract, hash) = (ContractId([1; 32]), "ab".repeat(32));
        let body = format!(
            r#"{{"factories":[{{"contract":"{contract}","event":"add_pool","param":"value_1"}}],
            "created_by":["{contract}"],"wasm":["{hash}"],"all":["transfer","mint"]}}"#
        );
        let selectors = read(&body).unwrap();
        assert_eq!(selectors.factories[0].event, "add_pool");
        assert_eq!((selectors.created_by.len(), selectors.wasm.len()), (1, 1));
        assert_eq!(selectors.all, ["transfer", "mint"]);
        assert!(read("{}").unwrap().is_empty());
        for (body, sentence) in [
            (r#"{"wasm":["ab"]}"#, "'wasm' has 'ab': give the SHA-256 of a module"),
            (r#"{"created_by":["X"]}"#, "'created_by': 'X' is not the address"),
            (r#"{"factories":[{"event":"a"}]}"#, "'factories' has"),
            (r#"{"factories":{}}"#, "'factories' is {}: give a list"),
        ] {
            let refused = read(body).unwrap_err().to_string();
            assert!(refused.contains(sentence), "{refused}");
        }
    }
}
