//! Verbs for subscriptions and deliveries, each of which calls routes of a running service.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::remote::{Body, Remote, draws_tables, with_query};
use crate::cli::topics::Topics;
use crate::cli::{Failure, output};

use super::declared;
use super::formatted::{attempts, deliveries, subscriptions, would_have_sent};
use super::on::On;

/// Interval between requests for the outcome of a test delivery.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time to wait for a test delivery: an attempt takes 15 seconds at most, and others may
/// come before it.
const LONGEST_TEST: Duration = Duration::from_secs(60);
/// Number of requests for one ledger, of which each goes on where the one before has stopped.
const MOST_REPEATED: u32 = 30;

/// Verbs for subscriptions. Each asks a running service.
#[derive(Debug, Subcommand)]
pub enum ManageVerb {
    /// Subscribe an endpoint to events, or to something else, with one subscription for each contract
    ///
    /// By default each matching event is sent; --on says what else there is to be told of: a contract gets other
    /// code (upgrade), its data changes (storage), entries are about to expire (ttl), a failed transaction calls
    /// it (failed_call), or no event comes (silence). With --format and --message, a chat gets it as text.
    #[command(after_help = "Examples:
  orrery webhooks new --contract CA… --endpoint https://example.com/events
  orrery webhooks new --address GA… --topic1 transfer --endpoint https://example.com/
  orrery webhooks new --project pools --where 'amount >= 1000000000' --endpoint https://example.com/
  orrery webhooks new --on upgrade --contract CA… --endpoint https://example.com/
  orrery webhooks new --on storage --key-name Admin --contract CA… --endpoint https://example.com/
  orrery webhooks new --on ttl --within 17280 --contract CA… --endpoint https://example.com/
  orrery webhooks new --on failed_call --functions swap --contract CA… --endpoint https://example.com/
  orrery webhooks new --on silence --within 720 --contract CA… --endpoint https://example.com/
  orrery webhooks new --contract CA… --topic1 transfer --format slack --endpoint-file slack-webhook \\
    --message '{from|short} sent {amount|units} to {to|short}'

The secret that signs deliveries is shown once.")]
    New(New),
    /// Say what a subscription would have sent, without making one
    #[command(after_help = "Examples:
  orrery webhooks try --contract CA… --where 'amount >= 1000000000'
  orrery webhooks try --contract CA… --topic1 transfer --last 100000
  orrery webhooks try --on upgrade --contract CA…

No --endpoint is needed.")]
    Try(Try),
    /// List your subscriptions, with the state of each, since when it fails, and why
    List(List),
    /// Delete a subscription with its deliveries
    Delete(Subscription),
    /// Show the deliveries of a subscription, the newest first
    Deliveries(Deliveries),
    /// Send a delivery again, or the matching events of stored ledgers
    #[command(after_help = "Examples:
  orrery webhooks replay 1 --delivery 00112233aabbccdd-1234
  orrery webhooks replay 1 --from 62000000 --to 62010000")]
    Replay(Replay),
    /// Send a test delivery, and show its outcome
    Test(Subscription),
    /// Enable a disabled subscription again
    Enable(Subscription),
    /// Give a subscription a new secret; the one before goes on signing beside it for a day
    #[command(after_help = "Examples:
  orrery webhooks rotate 1
  pass show hook | orrery webhooks rotate 1 --secret-file - --end-previous

The new secret is shown once. For a day, webhook-signature has a signature for each secret, and
X-Service-Signature is that of the oldest one.")]
    Rotate(Rotate),
}

/// How results look.
#[derive(Debug, Args)]
pub struct Json {
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct List {
    /// Print only the ids, one a line
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("destination").args(["endpoint", "endpoint_file"]).required(true))]
pub struct New {
    #[command(flatten)]
    wanted: Wanted,
    /// File with the secret that signs deliveries, - for standard input; without it a secret is generated
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub struct Try {
    #[command(flatten)]
    wanted: Wanted,
    /// Number of ledgers to look through, the newest, up to 100000
    #[arg(long, value_name = "LEDGERS", default_value_t = 1000)]
    last: u32,
    #[command(flatten)]
    output: Json,
}

/// What a subscription sends, and where.
#[derive(Debug, Args)]
struct Wanted {
    /// Contract IDs with commas between them; may be repeated
    #[arg(
        long = "contract",
        alias = "contracts",
        value_name = "C…",
        value_delimiter = ',',
        required_unless_present_any = ["address", "project"],
        conflicts_with = "project"
    )]
    contracts: Vec<String>,
    /// A project that you read, whose events and contracts are meant instead of those of --contract
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Address to which deliveries are sent
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    #[command(flatten)]
    topics: Topics,
    /// Only events with this address in a topic; of all contracts if --contract is not given
    #[arg(long, value_name = "G…|C…")]
    address: Option<String>,
    /// Only events for which this is true, such as "amount >= 1000000000 and to = 'G…'"
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Also send what happened in older ledgers when these are backfilled
    #[arg(long)]
    include_backfill: bool,
    #[command(flatten)]
    on: On,
    /// What takes the deliveries: service (JSON for programs), slack, discord, telegram, or text
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// What a message says, with names in braces, such as "{from|short} sent {amount|units}"
    #[arg(long, value_name = "TEMPLATE", requires = "format")]
    message: Option<String>,
    /// File with the address, - for standard input: that of a chat is a secret
    #[arg(long, value_name = "FILE", conflicts_with = "endpoint")]
    endpoint_file: Option<PathBuf>,
}

/// One subscription.
#[derive(Debug, Args)]
pub struct Subscription {
    /// The subscription's id
    id: u32,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub struct Rotate {
    #[command(flatten)]
    subscription: Subscription,
    /// File with the new secret, - for standard input; without it a secret is generated
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// End the secrets before it at once, because one has leaked
    #[arg(long)]
    end_previous: bool,
}

#[derive(Debug, Args)]
pub struct Deliveries {
    #[command(flatten)]
    subscription: Subscription,
    /// Only deliveries with this status: pending, retrying, delivered or dead
    #[arg(long)]
    status: Option<String>,
    /// Maximum number of deliveries, up to 1000
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
    /// Only deliveries before this one
    #[arg(long, value_name = "DELIVERY")]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    subscription: Subscription,
    /// The delivery
    #[arg(long, value_name = "DELIVERY", conflicts_with_all = ["from", "to"])]
    delivery: Option<String>,
    /// First ledger
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Last ledger; the newest stored one if not given
    #[arg(long, value_name = "LEDGER", requires = "from")]
    to: Option<u32>,
}

impl ManageVerb {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        match self {
            Self::New(verb) => verb.run(remote),
            Self::Try(verb) => verb.run(remote),
            Self::List(verb) => verb.run(remote),
            Self::Delete(Subscription { id, output }) => {
                remote.delete(&format!("webhooks/{id}"))?.show(output.json, &[])
            }
            Self::Deliveries(verb) => verb.run(remote),
            Self::Replay(verb) => verb.run(remote),
            Self::Test(verb) => verb.test(remote),
            Self::Rotate(verb) => verb.run(remote),
            Self::Enable(Subscription { id, output }) => {
                remote.post(&format!("webhooks/{id}/enable"), &json!({}))?.show(output.json, &[])
            }
        }
    }
}

impl List {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let answer = remote.get("webhooks/list")?;
        if self.quiet {
            let listed = answer.json()?;
            let subscriptions = listed.as_array().into_iter().flatten();
            return output::print_each(subscriptions.map(|it| it["id"].to_string()));
        }
        if draws_tables(self.output.json) {
            output::print(&subscriptions(&answer.json()?))
        } else {
            answer.print()
        }
    }
}

impl Wanted {
    /// The body of a request.
    fn body(&self) -> Result<Value, Failure> {
        let endpoint = match &self.endpoint_file {
            Some(file) => Some(secret(file)?),
            None => self.endpoint.clone(),
        };
        let mut body = json!({
            "webhook_endpoint": endpoint,
            "address": self.address,
            "where": self.condition,
            "project": self.project,
            "format": self.format,
            "message": self.message,
        });
        for (name, topic) in self.topics.parameters() {
            body[name] = topic.into();
        }
        if self.include_backfill {
            body["include_backfill"] = true.into();
        }
        self.on.add_to(&mut body);
        if !self.contracts.is_empty() {
            body["contract_ids"] = json!(self.contracts);
        }
        Ok(body)
    }
}

impl New {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let mut body = self.wanted.body()?;
        if let Some(file) = self.secret_file {
            body["webhook_secret"] = secret(&file)?.into();
        }
        let made = remote.post("webhooks/new", &body)?;
        let Wanted { topics, contracts, .. } = &self.wanted;
        for warning in topics.topic1.iter().flat_map(|it| declared::warnings(remote, contracts, it))
        {
            output::note(warning);
        }
        made.show(self.output.json, &[])
    }
}

impl Try {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let mut body = self.wanted.body()?;
        body["last"] = self.last.into();
        let answer = remote.post("webhooks/try", &body)?;
        if !draws_tables(self.output.json) {
            return answer.print();
        }
        let is_forward = matches!(body["on"].as_str(), Some("ttl" | "silence"));
        output::print(&would_have_sent(&answer.json()?, self.last, is_forward))
    }
}

impl Rotate {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let Subscription { id, output } = self.subscription;
        let mut body = json!({ "end_previous": self.end_previous });
        if let Some(file) = self.secret_file {
            body["webhook_secret"] = secret(&file)?.into();
        }
        remote.post(&format!("webhooks/{id}/secret"), &body)?.show(output.json, &[])
    }
}

/// Reads a secret from the first line of a file, or of standard input. As an argument it would be
/// visible in process listings.
fn secret(file: &std::path::Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = read.map_err(|error| {
        Failure::failed(format!("cannot read the secret in {}: {error}", file.display()))
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

impl Deliveries {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let Subscription { id, output } = self.subscription;
        let parameters = [
            ("status", self.status),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor),
        ];
        let answer = remote.get(&with_query(&format!("webhooks/{id}/deliveries"), &parameters))?;
        if draws_tables(output.json) {
            output::print(&deliveries(&answer.json()?))
        } else {
            answer.print()
        }
    }
}

impl Replay {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let Subscription { id, output } = self.subscription;
        let path = format!("webhooks/{id}/replay");
        if self.delivery.is_none() && self.from.is_none() {
            return Err(Failure::usage("give --delivery, or --from"));
        }
        let Some(mut from) = self.from else {
            let body = json!({ "delivery_id": self.delivery });
            return remote.post(&path, &body)?.show(output.json, &[]);
        };
        let newest = || remote.get("health")?.json();
        let to = match self.to {
            Some(to) => json!(to),
            None => newest()?["service_latest_ledger"].take(),
        };
        // The service limits the time of one request, and returns the ledger at which to continue.
        let mut repeated = 0;
        loop {
            let answer = remote.post(&path, &json!({ "from": from, "to": to }))?;
            answer.show(output.json, &[])?;
            match answer.json()?["next"].as_u64().and_then(|next| u32::try_from(next).ok()) {
                None => return Ok(()),
                Some(next) if next > from => (from, repeated) = (next, 0),
                // It goes on within the ledger.
                Some(_) if repeated < MOST_REPEATED => repeated += 1,
                Some(next) => {
                    return Err(Failure::failed(format!(
                        "the replay does not get beyond ledger {next}, of which there is more than \
                         {MOST_REPEATED} requests have time for: to go on within it, run the command \
                         again with --from {next}"
                    )));
                }
            }
        }
    }
}

impl Subscription {
    /// Sends a test delivery, and waits for its outcome.
    fn test(self, remote: &Remote) -> Result<(), Failure> {
        let path = format!("webhooks/{}", self.id);
        let begun = remote.post(&format!("{path}/test"), &json!({}))?.json()?;
        let id = &begun["delivery_id"];
        let until = Instant::now() + LONGEST_TEST;
        loop {
            let by_id = [("delivery_id", id.as_str().map(str::to_owned))];
            let page = remote.get(&with_query(&format!("{path}/deliveries"), &by_id))?.json()?;
            let found =
                page.as_array().and_then(|all| all.iter().find(|it| it["delivery_id"] == *id));
            match found {
                Some(delivery) if delivery["status"] != "pending" || Instant::now() >= until => {
                    let mut shown = delivery.clone();
                    if draws_tables(self.output.json) {
                        shown["attempts"] = attempts(delivery).into();
                    }
                    return Body(shown.to_string().into_bytes())
                        .show(self.output.json, &[])
                        .and_then(|()| outcome(delivery));
                }
                None if Instant::now() >= until => {
                    return Err(Failure::failed(
                        "the test delivery is not listed any more".to_owned(),
                    ));
                }
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Returns a failure unless the test delivery has arrived.
fn outcome(delivery: &Value) -> Result<(), Failure> {
    match delivery["status"].as_str() {
        Some("delivered") => Ok(()),
        Some("dead") => {
            Err(Failure::failed("the endpoint did not accept the test delivery".to_owned()))
        }
        _ => Err(Failure::failed("the test delivery was not sent in time".to_owned())),
    }
}
