//! Conditions that select events. Works on raw XDR: an event is not decoded to evaluate them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use orrery_ledger::domain::{ContractId, ParseError, address_xdr, scval_from_text};

/// Number of topics that a filter can name.
pub const TOPICS: usize = 4;

/// Names of the topic fields that [`Filter::parse`] reads, as requests spell them, in the order of
/// the topics.
pub const TOPIC_FIELDS: [&str; TOPICS] = ["topic1", "topic2", "topic3", "topic4"];
/// Name of the contract field; see [`TOPIC_FIELDS`].
pub const CONTRACT_FIELD: &str = "contract_id";
/// Name of the address field; see [`TOPIC_FIELDS`].
pub const ADDRESS_FIELD: &str = "address";

/// Conditions on an event. All that are given must hold; the default matches every event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Filter {
    /// Only events that this contract emitted: the contract id.
    pub contract: Option<[u8; 32]>,
    /// Only events that have this topic at this position: XDR of an `ScVal`. An event that has fewer topics
    /// does not match.
    pub topics: [Option<Vec<u8>>; TOPICS],
    /// Only events that have this topic at any position: XDR of an `ScVal::Address`.
    pub address: Option<Vec<u8>>,
}

/// Error of a malformed field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{field}' {problem}")]
pub struct FilterError {
    /// Name of the field, as requests spell it.
    pub field: &'static str,
    /// The rest of the sentence: what is wrong with which value, and what to give instead.
    pub problem: String,
}

impl Filter {
    /// Parses the conditions as users give them: a contract and an address as strkeys, topics
    /// in a form that [`scval_from_text`] reads.
    ///
    /// # Errors
    /// [`FilterError`], about the first field that is malformed.
    pub fn parse(
        contract: Option<&str>,
        topics: [Option<&str>; TOPICS],
        address: Option<&str>,
    ) -> Result<Self, FilterError> {
        let malformed = |field| {
            move |error: ParseError| FilterError {
                field,
                problem: format!("is malformed: {error}"),
            }
        };
        let contract = contract.map(str::parse::<ContractId>).transpose();
        let mut filter = Self {
            contract: contract.map_err(malformed(CONTRACT_FIELD))?.map(|contract| contract.0),
            ..Self::default()
        };
        for ((wanted, given), field) in filter.topics.iter_mut().zip(topics).zip(TOPIC_FIELDS) {
            // This message continues the sentence after the name of the field.
            let problem = |error: ParseError| FilterError { field, problem: error.to_string() };
            *wanted = given.map(scval_from_text).transpose().map_err(problem)?;
        }
        filter.address = address.map(address_xdr).transpose().map_err(malformed(ADDRESS_FIELD))?;
        Ok(filter)
    }

    /// Whether an event matches. `contract` is the contract that emitted it, if any; each topic is
    /// the XDR of an `ScVal`.
    pub fn matches(&self, contract: Option<&[u8; 32]>, topics: &[&[u8]]) -> bool {
        if let Some(wanted) = &self.contract
            && contract != Some(wanted)
        {
            return false;
        }
        for (position, wanted) in self.topics.iter().enumerate() {
            if let Some(wanted) = wanted
                && topics.get(position) != Some(&wanted.as_slice())
            {
                return false;
            }
        }
        self.address.as_ref().is_none_or(|wanted| topics.contains(&wanted.as_slice()))
    }
}

/// Returns the canonical spelling of a topic for users.
pub fn encode_topic(topic: &[u8]) -> String {
    STANDARD.encode(topic)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
    const ACCOUNT: &str = "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ";
    const FORMS: &str = "give type:value (such as symbol:transfer, u64:5 or address:G…), a symbol, \
                         an address, or the base64 XDR of an ScVal";
    // ScVal::Symbol("transfer")
    const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";

    #[test]
    fn errors_name_the_invalid_field_in_one_sentence() {
        let none = [None; TOPICS];
        let parse = |contract, topics, address| {
            Filter::parse(contract, topics, address).map_err(|error| error.to_string())
        };
        assert_eq!(parse(None, none, None), Ok(Filter::default()));
        let full =
            parse(Some(CONTRACT), [Some(TRANSFER), None, None, Some(TRANSFER)], Some(ACCOUNT));
        let full = full.unwrap();
        assert!(full.contract.is_some() && full.address.is_some());
        assert_eq!(full.topics.map(|topic| topic.is_some()), [true, false, false, true]);
        for (error, expected) in [
            (
                parse(Some(ACCOUNT), none, None),
                format!(
                    "'contract_id' is malformed: '{ACCOUNT}' is not a contract ID: give a strkey of 56 \
                     characters that starts with C"
                ),
            ),
            (
                parse(None, [None, None, Some("!"), None], None),
                format!("'topic3' holds '!', which is neither a symbol nor an address nor base64: {FORMS}"),
            ),
            (
                parse(None, [Some(""), None, None, None], None),
                format!("'topic1' holds '', which is neither a symbol nor an address nor base64: {FORMS}"),
            ),
            (
                parse(None, none, Some("me")),
                "'address' is malformed: 'me' is not an address: give a strkey, such as one that starts \
                 with G or C"
                    .to_owned(),
            ),
        ] {
            assert_eq!(error, Err(expected));
        }
    }

    /// The documented behaviour, implemented independently of the code above.
    fn model(filter: &Filter, contract: Option<&[u8; 32]>, topics: &[&[u8]]) -> bool {
        let contract = match (filter.contract, contract) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(given)) => wanted == *given,
        };
        let mut equal = true;
        for i in 0..4 {
            if let Some(wanted) = &filter.topics[i] {
                equal &= i < topics.len() && wanted == topics[i];
            }
        }
        let named = match &filter.address {
            None => true,
            Some(address) => topics.iter().any(|topic| topic == address),
        };
        contract && equal && named
    }

    #[test]
    fn filters_agree_with_the_model() {
        let mut rng = ChaCha8Rng::seed_from_u64(13);
        let values: Vec<Vec<u8>> = (0..4u8).map(|value| vec![value; 4]).collect();
        let mut matched = [0; 64];
        for round in 0..200_000usize {
            // Cycles through all combinations of conditions.
            let pattern = round % 64;
            let mut value = || values[rng.random_range(0..values.len())].clone();
            let topics = [0, 1, 2, 3].map(|i| (pattern >> i & 1 == 1).then(&mut value));
            let address = (pattern >> 4 & 1 == 1).then(&mut value);
            let contract = (pattern >> 5 & 1 == 1).then(|| [rng.random_range(0..2u8); 32]);
            let filter = Filter { contract, topics, address };
            let count = rng.random_range(0..=6);
            let mut event: Vec<&[u8]> =
                (0..count).map(|_| values[rng.random_range(0..values.len())].as_slice()).collect();
            // With purely random values, most filters would match nothing.
            if rng.random_bool(0.5) {
                for (topic, wanted) in event.iter_mut().zip(&filter.topics) {
                    *topic = wanted.as_deref().unwrap_or(*topic);
                }
            }
            let emitter = rng.random_bool(0.9).then(|| [rng.random_range(0..2u8); 32]);
            let expected = model(&filter, emitter.as_ref(), &event);
            assert_eq!(filter.matches(emitter.as_ref(), &event), expected, "{filter:?} {event:?}");
            matched[pattern] += usize::from(expected);
        }
        assert!(matched.iter().all(|count| *count > 0), "{matched:?}");
    }
}
