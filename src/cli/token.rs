//! `orrery token`: issues, lists and revokes tokens, with or without a running service, which
//! notices changes at once.

use clap::{Args, Subcommand};
use orrery::auth::{DEFAULT_DAYS, IssueRequest, Plan, Revocation, Scope, TokenEntry, Tokens};
use orrery::config::Settings;
use orrery::domain::Network;
use orrery::service;

use super::open::{self, Opened};
use super::{Common, Failure, flag, output};

/// Issue, list and revoke tokens
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery token issue --data-dir d --network testnet --sub alice
  orrery token issue --data-dir d --sub bob --plan builder --days 30 --scope read
  orrery token list --data-dir d
  orrery token revoke --data-dir d 6f1e…")]
pub struct Token {
    /// testnet, mainnet, futurenet, local or a passphrase; needed for a new data directory
    #[arg(long, global = true)]
    network: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Issue a token and print it: the only time that it is shown
    #[command(after_help = "Example:\n  TOKEN=$(orrery token issue --data-dir d --sub alice)")]
    Issue(Issue),
    /// List the tokens that were issued, oldest first
    #[command(after_help = "Example:\n  orrery token list --data-dir d --json | jq .jti")]
    List {
        /// Print one JSON object for each token, also on a terminal
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token by its id, the jti of the list
    #[command(after_help = "Example:\n  orrery token revoke --data-dir d 6f1e…")]
    Revoke {
        /// The token's id
        jti: String,
    },
}

#[derive(Debug, Args)]
struct Issue {
    /// Owner of the token
    #[arg(long, value_name = "NAME")]
    sub: String,
    /// dev, builder, pro or protocol [default: auth.default_plan of the settings]
    #[arg(long)]
    plan: Option<Plan>,
    /// Days until it expires
    #[arg(long, default_value_t = DEFAULT_DAYS)]
    days: u32,
    /// Limit it to the scope read, deploy, webhooks or admin; may be repeated
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<Scope>,
    /// A trial: plan builder for 14 days
    #[arg(long, conflicts_with_all = ["plan", "days"])]
    trial: bool,
}

impl Token {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(vec![flag("network", "--network", self.network)])?;
        let tokens = open_tokens(&settings)?;
        match self.verb {
            Verb::Issue(issue) => {
                let plan = issue.plan.unwrap_or(settings.config.auth.default_plan);
                let Issue { sub, days, scopes, trial, .. } = issue;
                let issued = tokens.issue(&IssueRequest { sub, plan, days, scopes, trial })?;
                output::print(&format!("{}\n", issued.token))
            }
            Verb::List { json } => list(&tokens.list()?, json || !output::is_terminal()),
            Verb::Revoke { jti } => {
                let sentence = match tokens.revoke(&jti)? {
                    Revocation::Revoked => "revoked",
                    Revocation::AlreadyRevoked => "was revoked before",
                    Revocation::NotIssuedHere => "was not issued here; refused from now on",
                };
                output::print(&format!("{jti} {sentence}\n"))
            }
        }
    }
}

/// Opens the tokens of the data directory, which may be a new one without ledgers.
fn open_tokens(settings: &Settings) -> Result<Tokens, Failure> {
    let config = &settings.config;
    let network = match open::open(settings, config.network().as_ref())? {
        Opened::Local(ledgers) => ledgers.store().network().clone(),
        Opened::Running(mut client) => {
            Network::from_passphrase(client.status()?.network_passphrase)
        }
    };
    Ok(service::open_tokens(&config.data_dir, &network, &config.auth)?)
}

fn list(tokens: &[TokenEntry], json: bool) -> Result<(), Failure> {
    if json {
        return tokens.iter().try_for_each(output::print_json);
    }
    let mut text =
        format!("{:<32} {:<16} {:<8} {:<20} scopes\n", "jti", "owner", "plan", "expires");
    for token in tokens {
        let scopes: Vec<String> = token.scopes.iter().map(Scope::to_string).collect();
        let expiry = match token.revoked_at {
            Some(_) => "revoked".to_owned(),
            None => output::iso_time(token.expires_at),
        };
        let TokenEntry { jti, sub, plan, .. } = token;
        text += &format!("{jti:<32} {sub:<16} {plan:<8} {expiry:<20} {}\n", scopes.join(" "));
    }
    output::print(&text)
}
