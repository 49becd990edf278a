//! Claims of a token, and the single function that decides what they permit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::error::AuthError;
use orrery_ledger::domain::Network;

/// Value of the `iss` claim of every token.
pub const ISSUER: &str = "orrery";

/// The claims of a verified token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Owner of the token and of everything that is created with it.
    pub sub: String,
    /// Expiry time in UNIX seconds.
    pub exp: u64,
    /// Time of issue in UNIX seconds.
    pub iat: u64,
    /// Always [`ISSUER`].
    pub iss: String,
    /// Network id in lowercase hexadecimal.
    pub aud: String,
    /// Id of the token, by which it is revoked.
    pub jti: String,
    /// Plan of the owner, which determines what the token gives access to.
    pub plan: Plan,
    /// Restriction of the plan to these scopes; `None` permits everything that the plan allows.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub scopes: Option<Vec<Scope>>,
    /// Start of validity in UNIX seconds. Not set in tokens issued here; enforced when another
    /// issuer sets it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub nbf: Option<u64>,
}

/// Deserialises an optional claim that must not be `null`: `"scopes": null` would otherwise mean
/// "no restriction".
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Plan of an owner, which determines what a token gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Everything, on every network except the public one.
    Dev,
    /// Queries, RPC and webhooks on every network; no custom programs.
    Builder,
    /// Everything in `Builder`, and custom programs. The default of tokens issued here.
    #[default]
    Pro,
    /// Everything in `Pro`.
    Protocol,
}

/// A group of actions that a token may be restricted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read stored data.
    Read,
    /// Deploy, extend and delete custom programs.
    Deploy,
    /// Manage webhook subscriptions.
    Webhooks,
    /// Operate the service.
    Admin,
}

const PLANS: [(&str, Plan); 4] = [
    ("dev", Plan::Dev),
    ("builder", Plan::Builder),
    ("pro", Plan::Pro),
    ("protocol", Plan::Protocol),
];

const SCOPES: [(&str, Scope); 4] = [
    ("read", Scope::Read),
    ("deploy", Scope::Deploy),
    ("webhooks", Scope::Webhooks),
    ("admin", Scope::Admin),
];

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(PLANS.iter().find(|(_, plan)| plan == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Plan {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Self, AuthError> {
        let found = PLANS.iter().find(|(name, _)| *name == text);
        found.map(|(_, plan)| *plan).ok_or_else(|| {
            AuthError::Other(format!("'{text}' is not a plan: give dev, builder, pro or protocol"))
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(SCOPES.iter().find(|(_, scope)| scope == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Scope {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Self, AuthError> {
        let found = SCOPES.iter().find(|(name, _)| *name == text);
        found.map(|(_, scope)| *scope).ok_or_else(|| {
            AuthError::Other(format!(
                "'{text}' is not a scope: give read, deploy, webhooks or admin"
            ))
        })
    }
}

/// Part of the service to which a right belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Events and transactions.
    Queries,
    /// Custom indexing programs.
    Programs,
    /// Webhooks.
    Webhooks,
}

/// Requirement of a route on a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// Part of the service, which the plan must include.
    pub area: Area,
    /// Action, which the scopes must include if the token has scopes.
    pub scope: Scope,
}

/// Reason why a valid token does not permit a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The plan does not include the public network.
    #[error("the plan 'dev' has no access to the public network: use a token of another plan")]
    DevOnMainnet,
    /// The plan does not include custom programs.
    #[error(
        "the plan 'builder' has no custom indexing programs: use a token of the plan 'pro' or 'protocol'"
    )]
    NoPrograms,
    /// The token is restricted to other scopes.
    #[error("the token lacks the scope '{0}': use a token with it, or one without scopes")]
    Scope(Scope),
}

/// Decides whether a token with these claims has `right` on `network`. Every route with a token
/// calls this function.
pub fn decide(claims: &Claims, right: Right, network: &Network) -> Result<(), Refusal> {
    if claims.plan == Plan::Dev && network.name() == "mainnet" {
        return Err(Refusal::DevOnMainnet);
    }
    if right.area == Area::Programs {
        has_programs(claims)?;
    }
    match &claims.scopes {
        Some(scopes) if !scopes.contains(&right.scope) => Err(Refusal::Scope(right.scope)),
        _ => Ok(()),
    }
}

/// Checks whether the plan of a token with these claims includes custom programs, and so projects.
///
/// # Errors
/// [`Refusal::NoPrograms`]
pub fn has_programs(claims: &Claims) -> Result<(), Refusal> {
    match claims.plan {
        Plan::Builder => Err(Refusal::NoPrograms),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(plan: Plan, scopes: Option<Vec<Scope>>) -> Claims {
        Claims {
            sub: "ana".into(),
            exp: 2,
            iat: 1,
            iss: ISSUER.into(),
            aud: String::new(),
            jti: "1".into(),
            plan,
            scopes,
            nbf: None,
        }
    }

    #[test]
    fn plans_grant_the_documented_areas() {
        let testnet = Network::from_name_or_passphrase("testnet");
        let mainnet = Network::from_name_or_passphrase("pubnet");
        let areas = [Area::Queries, Area::Programs, Area::Webhooks];
        for (plan, on_testnet, on_mainnet) in [
            (Plan::Dev, [true, true, true], [false, false, false]),
            (Plan::Builder, [true, false, true], [true, false, true]),
            (Plan::Pro, [true, true, true], [true, true, true]),
            (Plan::Protocol, [true, true, true], [true, true, true]),
        ] {
            for (network, expected) in [(&testnet, on_testnet), (&mainnet, on_mainnet)] {
                let allowed = areas.map(|area| {
                    let right = Right { area, scope: Scope::Read };
                    decide(&claims(plan, None), right, network).is_ok()
                });
                assert_eq!(allowed, expected, "{plan} on {network}");
            }
        }
    }

    #[test]
    fn scopes_restrict_a_token() {
        let network = Network::from_name_or_passphrase("testnet");
        let read = Right { area: Area::Queries, scope: Scope::Read };
        let with = |scopes| decide(&claims(Plan::Pro, scopes), read, &network);
        assert_eq!(with(None), Ok(()));
        assert_eq!(with(Some(vec![Scope::Webhooks, Scope::Read])), Ok(()));
        assert_eq!(with(Some(vec![Scope::Admin])), Err(Refusal::Scope(Scope::Read)));
        assert_eq!(with(Some(vec![])), Err(Refusal::Scope(Scope::Read)));
    }

    #[test]
    fn names_of_plans_and_scopes_round_trip() {
        for (name, plan) in PLANS {
            assert_eq!(plan.to_string(), name);
            assert_eq!(name.parse::<Plan>().unwrap(), plan);
            assert_eq!(serde_json::to_value(plan).unwrap(), name);
        }
        for (name, scope) in SCOPES {
            assert_eq!(scope.to_string(), name);
            assert_eq!(name.parse::<Scope>().unwrap(), scope);
            assert_eq!(serde_json::to_value(scope).unwrap(), name);
        }
        assert!("Pro".parse::<Plan>().is_err());
        assert!("webhook".parse::<Scope>().is_err());
    }
}
