//! The body of a delivery as something with named values: those of an event, or those of a trigger.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use stellar_xdr::ScVal;

use orrery_conditions::{Fields, Name, Value};
use orrery_interfaces::{Plain, Types, infer};
use orrery_ledger::domain::{ContractId, LedgerSeq};

/// Events whose emitter is the token whose amounts they have: a pool, which emits others, is often a token
/// itself.
const OF_TOKENS: [&str; 5] = ["transfer", "mint", "burn", "clawback", "approve"];

/// Members of a body, of which those that are JSON of any depth are read one by one.
#[derive(Deserialize)]
struct Members<'b> {
    #[serde(borrow)]
    event: Option<EventMembers<'b>>,
    #[serde(borrow)]
    trigger: Option<BTreeMap<String, &'b RawValue>>,
    tx_hash: Option<String>,
    #[serde(default)]
    test: bool,
}

#[derive(Deserialize)]
struct EventMembers<'b> {
    contract_id: String,
    #[serde(borrow)]
    body: EventBody<'b>,
    id: u64,
    ledger: u32,
    name: Option<String>,
    #[serde(borrow)]
    params: Option<BTreeMap<String, &'b RawValue>>,
    #[serde(default)]
    names_pending: bool,
}

#[derive(Deserialize)]
struct EventBody<'b> {
    #[serde(borrow)]
    v0: EventBodyV0<'b>,
}

#[derive(Deserialize)]
struct EventBodyV0<'b> {
    #[serde(borrow)]
    topics: Vec<&'b RawValue>,
    #[serde(borrow)]
    data: &'b RawValue,
}

/// A body that was read.
#[derive(Debug)]
pub struct Body {
    /// Parameters of an event, or members of a trigger.
    members: BTreeMap<String, Json>,
    /// What has a name in every body unless a member has it.
    own: Vec<(&'static str, Json)>,
    subject: Subject,
    ledger: LedgerSeq,
    tx: Option<String>,
    is_test: bool,
}

/// What a body is about.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    /// The event with this id, of a contract.
    Event { id: u64, contract: Option<ContractId>, is_of_token: bool },
    /// Something beside events.
    Trigger,
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// When it is neither that of an event nor that of a trigger.
    pub fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        let members: Members<'_> = serde_json::from_slice(body)?;
        let Members { event, trigger, tx_hash, test } = members;
        let mut parsed = match (event, trigger) {
            (Some(event), _) => Self::of_event(event),
            (None, trigger) => Self::of_trigger(trigger.unwrap_or_default()),
        };
        let tx = tx_hash.as_deref().map_or(Json::Null, Json::from);
        parsed.own.extend(["tx", "transaction", "tx_hash"].map(|name| (name, tx.clone())));
        (parsed.tx, parsed.is_test) = (tx_hash, test);
        Ok(parsed)
    }

    fn of_event(event: EventMembers<'_>) -> Self {
        let EventMembers { contract_id, body, id, ledger, name, params, names_pending } = event;
        let EventBody { v0: EventBodyV0 { topics, data } } = body;
        let values: Vec<Option<ScVal>> = topics.iter().map(|topic| value(topic)).collect();
        let plain = |(topic, value): (&&RawValue, &Option<ScVal>)| match value {
            Some(value) => undeclared(value),
            None => json(topic),
        };
        let topics: Vec<Json> = topics.iter().zip(&values).map(plain).collect();
        let values: Vec<ScVal> = values.into_iter().map_while(|topic| topic).collect();
        // Data that is too deep to be read has no parts with names.
        let data = value(data).unwrap_or(ScVal::Void);
        let inferred = infer(&values, &data);
        let members = match (params, &inferred) {
            (Some(params), _) => {
                params.into_iter().map(|(name, value)| (name, json(value))).collect()
            }
            // What the code declares is about to be known.
            (None, Some(it)) if !names_pending => {
                it.values.iter().map(|(name, value)| (name.clone(), undeclared(value))).collect()
            }
            (None, _) => BTreeMap::new(),
        };
        let name = name.or_else(|| inferred.map(|it| it.name));
        let is_of_token = name.as_deref().is_some_and(|name| OF_TOKENS.contains(&name));
        let contract = contract_id.parse().ok();
        Self {
            members,
            own: vec![
                ("contract_id", contract_id.into()),
                ("name", name.map_or(Json::Null, Json::from)),
                ("topics", topics.into()),
                ("ledger", ledger.into()),
                ("_ledger", ledger.into()),
            ],
            subject: Subject::Event { id, contract, is_of_token },
            ledger: LedgerSeq(ledger),
            tx: None,
            is_test: false,
        }
    }

    fn of_trigger(members: BTreeMap<String, &RawValue>) -> Self {
        let members: BTreeMap<String, Json> =
            members.into_iter().map(|(name, value)| (name, json(value))).collect();
        let ledger = members.get("ledger").cloned().unwrap_or_default();
        let whole = Json::Object(members.clone().into_iter().collect());
        Self {
            subject: Subject::Trigger,
            ledger: LedgerSeq(ledger.as_u64().and_then(|it| it.try_into().ok()).unwrap_or(0)),
            own: vec![("trigger", whole), ("_ledger", ledger)],
            members,
            tx: None,
            is_test: false,
        }
    }

    /// Returns the ledger in which it happened.
    pub fn ledger(&self) -> LedgerSeq {
        self.ledger
    }

    /// Whether it is the body of a test.
    pub fn is_test(&self) -> bool {
        self.is_test
    }

    /// Returns the contract that emitted the event, if it is one whose amounts are of this token.
    pub fn token(&self) -> Option<ContractId> {
        match self.subject {
            Subject::Event { contract, is_of_token: true, .. } => contract,
            Subject::Event { .. } | Subject::Trigger => None,
        }
    }

    /// Returns the path of this service's page about it: that of the event, of the transaction, or of the
    /// ledger.
    pub fn page(&self) -> String {
        match (&self.subject, &self.tx) {
            (Subject::Event { id, .. }, _) => format!("event/{id}"),
            (Subject::Trigger, Some(tx)) => format!("tx/{tx}"),
            (Subject::Trigger, None) => format!("ledger/{}", self.ledger),
        }
    }
}

impl Fields for Body {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        let exact = self.members.get(name.written());
        let folded = || self.members.iter().find(|(it, _)| name.is(it)).map(|(_, value)| value);
        let own = || self.own.iter().find(|(it, _)| name.is(it)).map(|(_, value)| value);
        exact.or_else(folded).or_else(own).map(Value::of_json)
    }
}

/// Returns JSON as a value; its text where it is too deep for one.
fn json(raw: &RawValue) -> Json {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| Json::String(raw.get().to_owned()))
}

/// Returns a value in its typed form; `None` where that is too deep.
fn value(typed: &RawValue) -> Option<ScVal> {
    serde_json::from_str(typed.get()).ok()
}

/// Returns a value without a declared type as plain JSON.
fn undeclared(value: &ScVal) -> Json {
    static NONE: LazyLock<Types> = LazyLock::new(Types::default);
    // Values of a body that was read serialise.
    serde_json::to_value(Plain::undeclared(value, &NONE)).unwrap_or_default()
}
