//! Verbs for indexing programs, each of which calls routes of a running service.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::confirm::confirm_deletion;
use super::output::Json;
use super::program_list::List;
use super::program_name::ProgramName;
use super::query::Query;
use super::remote::{Body, Remote, draws_tables, with_query};
use super::replacement::{self, Version};
use super::sql_tables::with_names_in_sql;
use super::watch::Watch;
use super::{Failure, fit, output, read_file, tables, trial};

/// Interval between requests for the progress of a backfill.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Verbs for programs. Each asks a running service.
#[derive(Debug, Subcommand)]
pub enum ProgramVerb {
    /// Deploy an indexing program for one or more contracts
    #[command(after_help = "Example:
  orrery --base http://127.0.0.1:8484/rest --jwt $TOKEN deploy --project deposits \\
    --code-path target/wasm32v1-none/release/deposits.wasm --contract CA…,CB…
  orrery deploy --replace --project deposits --code-path deposits.wasm")]
    Deploy(Deploy),
    /// Turn the events of contracts into SQL tables, live and from the first stored ledger
    ///
    /// Each event that the contracts declare becomes a table of its name, in the schema of the project's name,
    /// with a column for each parameter. Nothing is compiled or deployed. A contract that declares nothing gets
    /// tables from what its events look like, or from an interface that --spec supplies.
    ///
    /// Contracts that are not known yet are selected by the event with which a factory announces them (--factory
    /// --event --param), by the code that they run (--wasm), by who created them (--created-by), or by names of
    /// events (--all); several of these are joined by or. The view NAME.members lists them. Many of today's
    /// factories leave no trace of what they create: use --factory or --wasm for their contracts.
    #[command(after_help = "Examples:
  orrery watch usdc --contract CBIELTK6YBZJU5UP2WWQEUCYKLPU6AUNZ2BQ4WWFEIE3USCIHMXQDAMA
  orrery query 'select \"from\", \"to\", amount from usdc.transfer limit 3'
  orrery watch soroswap --factory CA… --event soroswap_factory_new_pair --param pair
  orrery watch vaults --wasm 6cb1…
  orrery query 'select contract_id, since_ledger from vaults.members'
  orrery watch pools --contract CA…,CB… --spec soroswap
  orrery watch usdc --replace --contract CA…,CB…")]
    Watch(Watch),
    /// Run a program on stored transactions without deploying it, and store nothing
    #[command(after_help = "Example:
  orrery try --code-path deposits.wasm --contract CA… --last 20")]
    Try(Try),
    /// List your indexing programs: which fail, and why, and how many ledgers each is behind
    #[command(after_help = "Examples:
  orrery watch copies --contract $(orrery list --contracts | head -n 1)
  orrery status $(orrery list --quiet | head -n 1)

Errors are those of the newest 500 runs.")]
    List(List),
    /// List the tables that you may read, by their names in SQL, with their columns and rows
    Tables(Json),
    /// Subscribe to the tables of another owner's public project
    #[command(after_help = "Example:
  orrery subscribe deposits")]
    Subscribe(Project),
    /// Unsubscribe from the tables of another owner's project
    Unsubscribe(Project),
    /// Query tables with SQL
    #[command(after_help = "Examples:
  orrery query 'select * from deposits.deposit order by _ledger desc limit 10'
  orrery query 'select sum(amount) from deposits.deposit' --numbers string
  orrery query 'from deposits.deposit' --format csv > deposits.csv")]
    Query(Query),
    /// Show the newest runs of an indexing program
    Executions(Executions),
    /// Show totals of an indexing program's runs for each ledger
    Stats(Stats),
    /// Register further contracts for a program
    AppendContracts(Append),
    /// Delete an indexing program with its tables and rows; this cannot be undone
    Delete(Delete),
    /// Stop running an indexing program on new ledgers until it is resumed
    Pause(Program),
    /// Resume an indexing program where it stopped
    Resume(Program),
}

/// One program.
#[derive(Debug, Args)]
pub struct Program {
    /// Its project's name, or its id
    #[arg(value_name = "PROGRAM")]
    name: ProgramName,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    program: Program,
    /// Delete without a question; needed where there is no terminal
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub struct Deploy {
    /// Name of the project, which no other owner of the service uses
    #[arg(long, value_name = "NAME")]
    project: String,
    /// The compiled module (.wasm)
    #[arg(long, value_name = "FILE")]
    code_path: PathBuf,
    /// Contract IDs with commas between them; may be repeated. With --replace, those of the deployed
    /// version if not given
    #[arg(
        long = "contract",
        alias = "contracts",
        value_name = "C…",
        value_delimiter = ',',
        required_unless_present = "replace"
    )]
    contracts: Vec<String>,
    #[command(flatten)]
    version: Version,
    /// Deploy it although it has none of the functions of its contracts, because they are to have its functions, or had
    /// them
    #[arg(long)]
    allow_unfit: bool,
    /// Do not wait until the deployed version is replaced
    #[arg(long, requires = "replace")]
    no_wait: bool,
    /// Print only the program's id
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
struct Code {
    /// The compiled module (.wasm)
    #[arg(long, value_name = "FILE")]
    code_path: PathBuf,
    #[command(flatten)]
    of: Contracts,
}

#[derive(Debug, Args)]
struct Contracts {
    /// Contract IDs with commas between them; may be repeated
    #[arg(
        long = "contract",
        alias = "contracts",
        value_name = "C…",
        value_delimiter = ',',
        required = true
    )]
    contracts: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Try {
    #[command(flatten)]
    code: Code,
    /// Transactions to run it on, with commas between them
    #[arg(long, value_name = "HASH", value_delimiter = ',', conflicts_with = "last")]
    transactions: Vec<String>,
    /// Number of the contracts' newest transactions to run it on
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    last: u32,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub struct Executions {
    #[command(flatten)]
    program: Program,
    /// Maximum number of runs, up to 200
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
    /// Newest ledger whose runs are shown; those of older ledgers follow
    #[arg(long, value_name = "LEDGER")]
    from_ledger: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    program: Program,
    /// Only runs of this kind, live or backfill; both if not given
    #[arg(long)]
    source: Option<String>,
    /// First ledger
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Last ledger
    #[arg(long, value_name = "LEDGER")]
    to: Option<u32>,
    /// Maximum number of ledgers, up to 1000
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Project {
    /// Name of the project
    project: String,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub struct Append {
    /// Its project's name, or its id
    #[arg(value_name = "PROGRAM")]
    name: ProgramName,
    #[command(flatten)]
    more: Contracts,
    #[command(flatten)]
    output: Json,
}

impl ProgramVerb {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        match self {
            Self::Deploy(verb) => verb.run(remote),
            Self::Watch(verb) => verb.run(remote),
            Self::Try(verb) => verb.run(remote),
            Self::List(verb) => verb.run(remote),
            Self::Tables(output) => tables::run(remote, &output),
            Self::Subscribe(verb) => verb.post(remote, "retroshade/subscribe"),
            Self::Unsubscribe(verb) => verb.post(remote, "retroshade/unsubscribe"),
            Self::Query(verb) => verb.run(remote),
            Self::Executions(verb) => verb.run(remote),
            Self::Stats(verb) => verb.run(remote),
            Self::AppendContracts(verb) => {
                let id = verb.name.id(remote)?;
                let body = json!({ "program_id": id, "contracts": verb.more.contracts });
                show(remote.post("retroshade/append-contracts", &body)?, &verb.output, &[])
            }
            Self::Delete(Delete { program, yes }) => {
                let id = program.name.id(remote)?;
                if !yes {
                    let name = &program.name;
                    confirm_deletion(&format!("the program {name} with its tables and rows"))?;
                }
                show(remote.delete(&format!("retroshade/{id}"))?, &program.output, &[])
            }
            Self::Pause(verb) => verb.set_running(remote, "pause"),
            Self::Resume(verb) => verb.set_running(remote, "resume"),
        }
    }
}

impl Deploy {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let code = read_file(&self.code_path)?;
        let mut body = json!({ "code": STANDARD.encode(&code), "project_name": self.project });
        if !self.contracts.is_empty() {
            body["contracts"] = json!(self.contracts);
        }
        self.version.write_into(&mut body);
        if self.allow_unfit {
            body["allow_unfit"] = true.into();
        }
        let replaces = self.version.replace;
        let replaced = if replaces { replacement::id_of(remote, &self.project)? } else { None };
        let deployed = remote.post("retroshade/deploy", &body)?;
        for warning in fit::warnings(remote, &code, &self.contracts) {
            output::note(warning);
        }
        if !replaces || self.no_wait {
            return self.show(deployed);
        }
        let answer = replacement::follow(remote, &self.project, replaced, &deployed)?;
        self.show(answer)
    }

    fn show(&self, answer: Body) -> Result<(), Failure> {
        if self.quiet {
            return output::print(&format!("{}\n", answer.json()?["id"]));
        }
        show_project(answer, &self.output)
    }
}

impl Project {
    fn post(self, remote: &Remote, path: &str) -> Result<(), Failure> {
        show_project(remote.post(path, &json!({ "project": self.project }))?, &self.output)
    }
}

impl Program {
    fn set_running(&self, remote: &Remote, action: &str) -> Result<(), Failure> {
        let id = self.name.id(remote)?;
        let answer = remote.post(&format!("retroshade/{id}/{action}"), &json!({}))?;
        show_project(answer, &self.output)
    }
}

impl Try {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let Code { code_path, of: Contracts { contracts } } = self.code;
        let code = read_file(&code_path)?;
        let mut body = json!({ "code": STANDARD.encode(&code), "contracts": contracts });
        if self.transactions.is_empty() {
            body["last"] = self.last.into();
        } else {
            body["transactions"] = self.transactions.into();
        }
        let answer = remote.post("retroshade/try", &body)?;
        for warning in fit::warnings(remote, &code, &contracts) {
            output::note(warning);
        }
        if draws_tables(self.output.json) {
            output::print(&trial::draw(&answer.json()?))
        } else {
            answer.print()
        }
    }
}

impl Executions {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let path = format!("retroshade/{}/executions", self.program.name.id(remote)?);
        let answer = remote.get(&with_query(
            &path,
            &[("limit", text(self.limit)), ("from_ledger", text(self.from_ledger))],
        ))?;
        let columns = [
            "ledger_sequence",
            "tx_hash",
            "status",
            "rows_written",
            "execution_ms",
            "fidelity",
            "error_message",
        ];
        show(answer, &self.program.output, &columns)
    }
}

impl Stats {
    fn run(self, remote: &Remote) -> Result<(), Failure> {
        let path = format!("retroshade/{}/stats", self.program.name.id(remote)?);
        let parameters = [
            ("source", self.source),
            ("from", text(self.from)),
            ("to", text(self.to)),
            ("limit", text(self.limit)),
        ];
        let columns = [
            "ledger_sequence",
            "source",
            "executions",
            "error_count",
            "rows_written",
            "total_execution_ms",
        ];
        show(remote.get(&with_query(&path, &parameters))?, &self.program.output, &columns)
    }
}

/// Runs `orrery status PROGRAM`.
pub fn status(remote: &Remote, program: &ProgramName, json: bool) -> Result<(), Failure> {
    let id = program.id(remote)?;
    show(remote.get(&format!("retroshade/{id}/status"))?, &Json { json }, &[])
}

/// Requested action on a program's backfill.
pub enum BackfillAction {
    /// Begin a backfill, and wait until it ends unless `detach` is set. Without `to`, it ends at the
    /// newest ledger.
    Begin { from: u32, to: Option<u32>, detach: bool },
    /// Show its progress.
    Show,
    /// Cancel it.
    Cancel,
}

/// Runs `orrery backfill PROGRAM`.
pub fn backfill(
    remote: &Remote,
    program: &ProgramName,
    action: BackfillAction,
    json: bool,
) -> Result<(), Failure> {
    let path = format!("retroshade/{}/backfill", program.id(remote)?);
    let output = Json { json };
    match action {
        BackfillAction::Show => show(remote.get(&path)?, &output, &[]),
        BackfillAction::Cancel => show(remote.delete(&path)?, &output, &[]),
        BackfillAction::Begin { from, to, detach } => {
            let begun = remote.post(&path, &json!({ "from": from, "to": to }))?;
            if detach { show(begun, &output, &[]) } else { follow(remote, &path, begun, &output) }
        }
    }
}

/// Shows a progress bar until a backfill ends. After Ctrl-C the service continues the backfill.
fn follow(remote: &Remote, path: &str, begun: Body, output: &Json) -> Result<(), Failure> {
    let mut state = begun.json()?;
    let number = |state: &Value, name: &str| state[name].as_u64().unwrap_or(0);
    let template = "{bar:30} {pos}/{len} ledgers {msg} {eta} left";
    let bar = output::progress_bar(Some(number(&state, "ledgers")), template);
    let mut answer = begun;
    while state["state"] == "running" {
        std::thread::sleep(POLL_INTERVAL);
        answer = remote.get(path)?;
        state = answer.json()?;
        bar.set_position(number(&state, "ledgers_done"));
        bar.set_message(format!("{} rows", number(&state, "rows_written")));
    }
    bar.finish_and_clear();
    show(answer, output, &[])
}

/// Shows an answer that names the tables of a project.
fn show_project(answer: Body, output: &Json) -> Result<(), Failure> {
    let answer = if draws_tables(output.json) { with_names_in_sql(&answer)? } else { answer };
    show(answer, output, &[])
}

fn show(answer: Body, output: &Json, columns: &[&str]) -> Result<(), Failure> {
    answer.show(output.json, columns)
}

fn text(number: Option<u32>) -> Option<String> {
    number.map(|number| number.to_string())
}
