//! `orrery token`: issues, lists and revokes tokens, with or without a running service, which
//! notices changes at once.

use clap::{Args, Subcommand};
use orrery::auth::{self, DEFAULT_DAYS, IssueRequest, Plan, Revocation, Scope, TokenEntry, Tokens};
use orrery::config::Settings;
use orrery::control::STATUS;
use orrery::domain::Network;
use orrery::service;

use super::open::{self, Opened};
use super::{Common, Failure, NetworkFlags, output};

/// Issue, list and revoke tokens
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery token issue --data-dir d --network testnet --sub alice
  orrery token issue --data-dir d --sub bob --plan builder --days 30 --scope read
  orrery token list --data-dir d
  orrery token revoke --data-dir d 6f1e…")]
pub struct Token {
    #[command(flatten)]
    network: NetworkFlags,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Issue a token and print it: the only time that it is shown
    #[command(after_help = "Example:\n  TOKEN=$(orrery token issue --data-dir d --sub alice)")]
    Issue(Issue),
    /// List the tokens that were issued, oldest first
    #[command(
        after_help = "Example:\n  orrery token revoke $(orrery token list --quiet | tail -n 1)"
    )]
    List {
        /// Print one JSON object for each token, also on a terminal
        #[arg(long)]
        json: bool,
        /// Print only the ids, one a line
        #[arg(long, short, conflicts_with = "json")]
        quiet: bool,
    },
    /// Revoke a token by its id
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
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// Sign it with the key of the data directory: readers that are made of its snapshots accept it, too
    #[arg(long)]
    portable: bool,
    /// A trial: plan builder for 14 days
    #[arg(long, conflicts_with_all = ["plan", "days"])]
    trial: bool,
}

impl Token {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let network = self.network.settings();
        let settings = common.or_of_service(network.clone())?.settings(network)?;
        match self.verb {
            Verb::Issue(issue) => issue.run(&settings),
            Verb::List { quiet: true, .. } => {
                output::print_each(issued(&settings)?.iter().map(|token| &*token.jti))
            }
            Verb::List { json, .. } => {
                print_list(&issued(&settings)?, json || !output::is_terminal())
            }
            Verb::Revoke { jti } => revoke(&settings, &jti),
        }
    }
}

impl Issue {
    /// Issues a token of the data directory, which may be a new one without ledgers.
    fn run(self, settings: &Settings) -> Result<(), Failure> {
        let config = &settings.config;
        let is_new = !config.data_dir.exists();
        let tokens = tokens_of(open::open(settings, config.network().as_ref())?, settings)?;
        if is_new {
            output::note(format_args!("created the data directory {}", config.data_dir.display()));
        }
        let plan = self.plan.unwrap_or(config.auth.default_plan);
        let Issue { sub, days, scopes, trial, .. } = self;
        let request = IssueRequest { sub, plan, days, scopes, trial };
        let issued = match self.portable {
            true => tokens.issue_portable(&request)?,
            false => tokens.issue(&request)?,
        };
        output::print(&format!("{}\n", issued.token))
    }
}

fn revoke(settings: &Settings, jti: &str) -> Result<(), Failure> {
    let tokens = tokens_of(open::open_existing(settings)?, settings)?;
    let sentence = match tokens.revoke(jti)? {
        Revocation::Revoked => "revoked",
        Revocation::AlreadyRevoked => "was revoked before",
        Revocation::NotIssuedHere if settings.config.auth.public_keys.is_empty() => {
            return Err(Failure::failed(format!(
                "no token with the id {jti} was issued here: `orrery token list` shows the ids; a \
                 token of another issuer with this id is refused from now on"
            )));
        }
        Revocation::NotIssuedHere => "was not issued here; refused from now on",
    };
    output::print(&format!("{jti} {sentence}\n"))
}

fn tokens_of(opened: Opened, settings: &Settings) -> Result<Tokens, Failure> {
    let config = &settings.config;
    let network = match opened {
        Opened::Local(ledgers) => ledgers.store().network().clone(),
        Opened::Running(mut client) => {
            Network::from_passphrase(client.ask(STATUS, &())?.network_passphrase)
        }
    };
    service::open_tokens(&config.data_dir, &network, &config.auth)
        .map_err(|error| open::explained(error, &config.data_dir))
}

/// Returns the tokens that were issued, oldest first.
fn issued(settings: &Settings) -> Result<Vec<TokenEntry>, Failure> {
    // Reports a wrong directory or network.
    drop(open::look(settings)?);
    let data_dir = &settings.config.data_dir;
    auth::issued(&service::secrets(data_dir)).map_err(|error| open::explained(error, data_dir))
}

fn print_list(tokens: &[TokenEntry], json: bool) -> Result<(), Failure> {
    if json {
        return tokens.iter().try_for_each(output::print_json);
    }
    let mut text = format!(
        "{:<32} {:<16} {:<8} {:<20} {:<20} scopes\n",
        "id", "owner", "plan", "issued", "expires"
    );
    for token in tokens {
        let scopes: Vec<String> = token.scopes.iter().map(Scope::to_string).collect();
        let expiry = match token.revoked_at {
            Some(_) => "revoked".to_owned(),
            None => output::iso_time(token.expires_at),
        };
        let TokenEntry { jti, sub, plan, .. } = token;
        let issued = output::iso_time(token.issued_at);
        let scopes = scopes.join(" ");
        text += &format!("{jti:<32} {sub:<16} {plan:<8} {issued:<20} {expiry:<20} {scopes}\n");
    }
    output::print(&text)
}
