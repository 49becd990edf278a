//! `orrery demo`: the whole service on a network of its own, for a first look.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use ipnet::IpNet;
use orrery::auth::{IssueRequest, Tokens};
use orrery::config::{Origin, Settings};
use orrery::domain::{ContractId, Network, Owner, Page, StartPoint};
use orrery::observe::logs::LogLevel;
use orrery::programs::{Deploy, ProgramError, Programs};
use orrery::service::{self, Following, Ledgers, RunningSandbox, Service, unix_now_ms};
use orrery::source::follow::Candidate;
use orrery::source::sandbox::{MARKET_PROGRAM, Sandbox, SandboxWallets};
use orrery::source::sandbox_network::{self, SandboxNetworkError};
use orrery::store::{EventQuery, TopicFilter};
use orrery::tables::query::QueryRequest;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::serve::{runtime, stop_on_signal};
use super::{Common, Failure, begin_log, flag, open, output};

/// Try it: a service on a network of its own, without files and without the internet
///
/// Makes a ledger a second, in which contracts are really called, deploys an indexing program for one of
/// them, and prints lines to paste. Clients of Stellar RPC deploy and call contracts of their own there. Goes on
/// until it is interrupted; with --data-dir the next demo continues there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery demo
  orrery demo --listen 127.0.0.1:9000 --data-dir demo-data
  orrery demo --close-time 200")]
pub struct Demo {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Milliseconds between two ledgers
    ///
    /// Headers tell close times in whole seconds where this is a number of them, which every client can read, and
    /// in milliseconds otherwise (CAP-88), which takes clients of protocol 30.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(20..=3_600_000))]
    close_time: u64,
}

/// The first ledgers are there within a fraction of this.
const FIRST_LEDGERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Whose token is printed, and whose the program is.
const OWNER: &str = "demo";
/// The program's project; its rows are in the view of this name and that of the emitted struct.
const PROJECT: &str = "market";
/// What has become of the rows so far. Without quotes, so that it can stand in a shell's.
const QUERY: &str = "select count(*) as trades, sum(amount) as goods, sum(cost) as cash, \
                     max(_ledger) as ledger from market_trade";
/// Where the receiver listens that is suggested for trying webhooks out.
const RECEIVER: &str = "127.0.0.1:9100";
/// Ledgers, and events, before the demo says that it is ready.
const ENOUGH: u64 = 10;

impl Demo {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let mut settings = common.load(vec![flag(
            "http.listen",
            "--listen",
            self.listen.map(|address| address.to_string()),
        )])?;
        let own = settings.origin("log.level") == Origin::Default;
        let level = if own { LogLevel::Warn } else { settings.config.log.level };
        begin_log(&settings, level)?;
        // Removed when this function returns.
        let temporary = temporary_directory(&settings)?;
        if let Some(directory) = &temporary {
            settings.config.data_dir = directory.path().to_owned();
        }
        if settings.origin("webhooks.allow_subnets") == Origin::Default {
            // Whoever tries it out receives deliveries on the same machine.
            let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            settings.config.webhooks.allow_subnets = own.map(IpNet::from).into();
        }
        let network = settings.config.network();
        let network = network.unwrap_or_else(|| Network::from_name_or_passphrase("local"));
        let ledgers = Arc::new(open::alone(&settings, Some(&network))?);
        let close_time = Duration::from_millis(self.close_time);
        runtime()?.block_on(demonstrate(ledgers, &settings, temporary.is_none(), close_time))
    }
}

/// A directory that goes with the demo, unless one was named.
fn temporary_directory(settings: &Settings) -> Result<Option<TempDir>, Failure> {
    if settings.origin("data_dir") != Origin::Default {
        return Ok(None);
    }
    let made = tempfile::Builder::new().prefix("orrery-demo-").tempdir();
    let failed = |error| Failure::failed(format!("cannot make a temporary directory: {error}"));
    made.map(Some).map_err(failed)
}

async fn demonstrate(
    ledgers: Arc<Ledgers>,
    settings: &Settings,
    kept: bool,
    close_time: Duration,
) -> Result<(), Failure> {
    let (config, store) = (&settings.config, ledgers.store());
    let mut stop = stop_on_signal()?;
    let entrances = service::listen(config.http.listen, store.directory()).await?;
    let address = entrances.address;
    ledgers.listening_on(address);
    let stored = store.status().latest();
    let opening =
        sandbox_network::Opening { seed: rand::random(), close_time, clock: Arc::new(unix_now_ms) };
    let opened = sandbox_network::open(store.directory(), store.network(), stored, opening)?;
    let sandbox = RunningSandbox::new(opened.live, close_time);
    let tokens = Arc::new(service::open_tokens(store.directory(), store.network(), &config.auth)?);
    let service = Service::open(Arc::clone(&ledgers), config, stop.clone()).await?;
    let service = service.with_sandbox(sandbox);
    let programs = Arc::clone(&service.programs);
    let market = Sandbox::market_contract(store.network()).map_err(SandboxNetworkError::from)?;
    at_work({
        let programs = Arc::clone(&programs);
        move || deploy(&programs, market)
    })
    .await?;
    let running = service::run_opened(
        service,
        Arc::clone(&tokens),
        config,
        entrances,
        Some(Following {
            sources: vec![Candidate::new("sandbox", Box::new(opened.source))],
            start: StartPoint::Oldest,
        }),
        service::sources::opener(config, &ledgers),
        stop.clone(),
    );
    let welcome = async {
        if first_ledgers(&ledgers, &mut stop).await? && first_rows(&programs, &mut stop).await? {
            let directory = kept.then(|| store.directory());
            output::print(&welcome(address, &tokens, &ledgers, directory, close_time)?)?;
        }
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ended = running => Ok(ended?),
        failed = welcome => failed,
    }
}

/// Does what blocks on a thread for it.
async fn at_work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Failure::failed(format!("a part of the demo ended: {error}")))?
}

/// Deploys the program for the market's contract, unless an earlier demo did.
fn deploy(programs: &Programs, market: ContractId) -> Result<(), Failure> {
    let owner = Owner(OWNER.to_owned());
    if programs.list(&owner).iter().any(|program| program.project_name == PROJECT) {
        return Ok(());
    }
    let deploy = Deploy {
        code: MARKET_PROGRAM.to_vec(),
        project_name: PROJECT.to_owned(),
        contracts: vec![market],
        public: false,
    };
    let failed =
        |error: ProgramError| Failure::failed(format!("the demo's program is refused: {error}"));
    programs.deploy(&owner, deploy).map(drop).map_err(failed)
}

/// Waits until the program has rows; false when the demo is stopped before.
async fn first_rows(
    programs: &Arc<Programs>,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool, Failure> {
    let start = Instant::now();
    loop {
        let programs = Arc::clone(programs);
        let query = QueryRequest {
            query: format!("select _ledger from {PROJECT}_trade limit 1"),
            ..QueryRequest::default()
        };
        let answer =
            at_work(move || Ok(programs.query(&Owner(OWNER.to_owned()), query, &|| false))).await?;
        let trouble = match answer {
            Ok(answer) if answer.bytes.as_slice() != b"[]" => return Ok(true),
            Ok(_) => "no row has come".to_owned(),
            // As long as tables are filled after a start they cannot be asked.
            Err(error) => error.to_string(),
        };
        if start.elapsed() > FIRST_LEDGERS_TIMEOUT {
            let sentence = format!("the demo's program has nothing to show: {trouble}");
            return Err(Failure::failed(sentence));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(false),
        }
    }
}

/// Waits until there is something to ask for; false when the demo is stopped before.
async fn first_ledgers(
    ledgers: &Ledgers,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool, Failure> {
    let start = Instant::now();
    loop {
        // Ids count on when retention has removed events again.
        if ledgers.store().status().last_event_id.0 >= ENOUGH {
            return Ok(true);
        }
        if let Some((name, reason)) = ledgers.health().first_down() {
            return Err(Failure::failed(format!("the demo could not begin: {name}: {reason}")));
        }
        if start.elapsed() > FIRST_LEDGERS_TIMEOUT {
            return Err(Failure::failed("the demo made no events within a minute"));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(false),
        }
    }
}

fn welcome(
    address: SocketAddr,
    tokens: &Tokens,
    ledgers: &Ledgers,
    directory: Option<&Path>,
    close_time: Duration,
) -> Result<String, Failure> {
    let token = tokens.issue(&IssueRequest::for_owner(OWNER))?.token;
    let base = format!("http://{address}/rest");
    let newest = format!("{base}/events/by-ledger?limit=3");
    let contract = busy_contract(ledgers)?;
    let of_contract = match contract {
        Some(contract) => format!("{base}/events/by-contract/{contract}?limit=3"),
        None => format!("{base}/txs/by-ledger?limit=3"),
    };
    let wallets = Sandbox::wallets(ledgers.store().network()).map_err(SandboxNetworkError::from)?;
    let looked_up = looked_up(&wallets, &base);
    let pushed = contract.map(|contract| pushed(contract, &base, &token)).unwrap_or_default();
    let built_on = built_on(address, ledgers.store().network());
    let pace = match close_time.as_millis() {
        1000 => "one ledger a second".to_owned(),
        milliseconds => format!("one ledger every {milliseconds} ms"),
    };
    let stays = match directory {
        Some(directory) => format!("Everything stays in {}.", directory.display()),
        None => "Everything is removed at the end; --data-dir keeps it.".to_owned(),
    };
    Ok(format!(
        "Orrery is listening on http://{address} with a network of its own, {pace}.
{stays} Stop it with Ctrl-C.

Token:
{token}

Try, in another terminal:
curl '{base}/health'
curl -H 'Authorization: Bearer {token}' '{newest}'
curl -H 'Authorization: Bearer {token}' '{of_contract}'

A program that was deployed for a contract of this network makes a row of each trade. Ask again and again:
curl -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d '{{\"query\":\"{QUERY}\"}}' '{base}/retroshade/query'
{looked_up}{pushed}{built_on}"
    ))
}

/// How clients of Stellar RPC use the network.
fn built_on(address: SocketAddr, network: &Network) -> String {
    let passphrase = network.passphrase();
    format!(
        "
Clients of Stellar RPC deploy and call contracts of their own here. Its address, its passphrase, and coins:
http://{address}/rpc
{passphrase}
curl 'http://{address}/friendbot?addr=G…'
For Stellar's command line:
stellar network add orrery-demo --rpc-url http://{address}/rpc --network-passphrase '{passphrase}'
"
    )
}

/// How to look up the network's smart account and its passkey wallets.
fn looked_up(wallets: &SandboxWallets, base: &str) -> String {
    let SandboxWallets { smart_account, legacy, v1, credential } = wallets;
    let credential: String = credential.iter().map(|byte| format!("{byte:02x}")).collect();
    let (smart, passkey) =
        (format!("{base}/smart-account-indexer"), format!("{base}/passkey-indexer"));
    format!(
        "
A smart account and two passkey wallets of this network change their signers. By the passkey, and each of them:
curl '{smart}/api/lookup/{credential}'
curl '{passkey}/api/lookup/{credential}'
curl '{smart}/api/contract/{smart_account}'
curl '{passkey}/api/wallet/{legacy}'
curl '{passkey}/api/wallet/{v1}'
"
    )
}

/// How to have a contract's events sent to a receiver that shows them.
fn pushed(contract: ContractId, base: &str, token: &str) -> String {
    format!(
        "
Have a contract's events sent to you, signed; in one terminal, and in another:
orrery webhooks listen --listen {RECEIVER} --secret {OWNER}
echo {OWNER} | orrery --base {base} --jwt {token} webhooks new --contract {contract} --endpoint http://{RECEIVER}/ --secret-file -
"
    )
}

/// The contract of the newest event.
fn busy_contract(ledgers: &Ledgers) -> Result<Option<ContractId>, Failure> {
    let query = EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page::first(1),
    };
    let mut contract = None;
    ledgers.store().events(&query, |event| contract = event.contract.copied().map(ContractId))?;
    Ok(contract)
}
