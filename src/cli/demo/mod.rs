//! `orrery demo`: runs the whole service on a sandbox network of its own, for trying it out.

mod projects;
mod welcome;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ipnet::IpNet;
use orrery::auth::IssueRequest;
use orrery::config::{Config, Origin, Settings};
use orrery::domain::{Network, Owner, StartPoint};
use orrery::programs::Programs;
use orrery::sandbox::network::Sandbox;
use orrery::sandbox::source::{self, SandboxNetworkError};
use orrery::service::{self, Following, Node, RunningSandbox, Service};
use orrery::settings::{CorsOrigin, PublicUrl};
use orrery::source::follow::Candidate;
use orrery::steady::unix_now_ms;
use orrery::tables::query::QueryRequest;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use projects::{OWNER, Projects, first_tables};
use welcome::Welcome;

use super::installed::on_this_machine;
use super::live_line::LiveLine;
use super::open::NewDirectory;
use super::serve::{runtime, stop_on_signal};
use super::{Common, Failure, begin_log, flag, listen_address, open, output};

/// Try the service on a sandbox network, without files and without the internet
///
/// Closes a ledger every second, in which contracts are really called, deploys an indexing program for one of
/// them, and prints commands to paste. Clients of Stellar RPC can deploy and call contracts on this network.
/// Runs until it is interrupted; with --data-dir the next demo continues from the stored ledgers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery demo
  orrery demo --listen 127.0.0.1:9000 --data-dir demo-data
  orrery demo --close-time 200")]
pub struct Demo {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Milliseconds between two ledgers
    ///
    /// Ledger headers hold close times in seconds if this is a number of whole seconds, which every client can
    /// read, and otherwise in milliseconds (CAP-88), which requires clients of protocol 30.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = milliseconds)]
    close_time: u64,
    /// Print addresses, token and accounts of the network as one JSON object instead of commands
    #[arg(long)]
    json: bool,
}

/// Maximum time to wait for the first events, and then for the first rows of each table. All of it
/// usually takes a fraction of that.
const FIRST_LEDGERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Directory of the export in the data directory.
const EXPORT: &str = "export";
/// Number of events that must have been stored before the demo reports that it is ready.
const MIN_EVENTS: u64 = 10;

impl Demo {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let mut settings = common.load(vec![flag(
            "http.listen",
            "--listen",
            self.listen.map(|address| address.to_string()),
        )])?;
        begin_log(&settings, true)?;
        // Dropped, and so removed, when this function returns.
        let temporary = temporary_directory(&settings)?;
        if let Some(directory) = &temporary {
            settings.config.data_dir = directory.path().to_owned();
        }
        if settings.origin("webhooks.allow_subnets") == Origin::Default {
            // Allows webhook deliveries to a receiver on the same machine.
            let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            settings.config.webhooks.allow_subnets = own.map(IpNet::from).into();
        }
        if settings.origin("http.cors_origins") == Origin::Default {
            // Pages that are developed on this machine may try the demo.
            let own = ["http://localhost:*", "http://127.0.0.1:*"].map(str::to_owned);
            let own: Result<Vec<_>, _> = own.into_iter().map(CorsOrigin::try_from).collect();
            settings.config.http.cors_origins = own.map_err(Failure::failed)?;
        }
        if settings.origin("http.public_read") == Origin::Default {
            settings.config.http.public_read = true;
        }
        widen_limits(&mut settings);
        export_beside(&mut settings);
        let patience = Patience::begin();
        let network = settings.config.network();
        let network = network.unwrap_or_else(|| Network::from_name_or_passphrase("local"));
        // Dropped after the store, which has to be closed before its directory is removed.
        let mut new = NewDirectory::at(&settings.config.data_dir);
        let node = open::open_for_service(&settings, Some(&network))?;
        new.created(&node);
        let close_time = Duration::from_millis(self.close_time);
        let opening =
            source::Opening { seed: rand::random(), close_time, clock: Arc::new(unix_now_ms) };
        let node = Arc::new(node.with_sandbox(&opening)?);
        let told = Told { kept: temporary.is_none(), json: self.json };
        runtime()?.block_on(demonstrate(node, &settings, told, opening, &mut new, patience))
    }
}

/// Says after some seconds that the demo is still starting, until it is dropped.
struct Patience {
    _ready: mpsc::Sender<()>,
}

impl Patience {
    const SILENCE: Duration = Duration::from_secs(4);

    fn begin() -> Self {
        let (ready, started) = mpsc::channel::<()>();
        thread::spawn(move || {
            let waited = started.recv_timeout(Self::SILENCE);
            if waited == Err(RecvTimeoutError::Timeout) {
                output::note(
                    "still starting: the network closes its first ledgers, and its tables get rows",
                );
            }
        });
        Self { _ready: ready }
    }
}

/// How the demo is announced.
#[derive(Clone, Copy)]
struct Told {
    /// Whether the data directory stays.
    kept: bool,
    json: bool,
}

/// Widens the limits for one client, unless they are configured: test suites on this machine send
/// everything from one address.
fn widen_limits(settings: &mut Settings) {
    const WIDE: NonZeroU32 = NonZeroU32::new(512).unwrap();
    let keys = ["requests_per_second", "burst", "requests_in_flight", "connections_per_address"];
    let [rate, burst, requests, connections] =
        keys.map(|key| settings.origin(&format!("limits.{key}")) == Origin::Default);
    let limits = &mut settings.config.limits;
    if rate && burst {
        (limits.requests_per_second, limits.burst) = (1_000, 5_000);
    }
    if requests {
        limits.requests_in_flight = WIDE;
    }
    if connections {
        limits.connections_per_address = WIDE;
    }
}

/// Exports to the data directory, unless another destination is configured: SQL has the events and transactions of
/// the network while they are exported to a directory.
fn export_beside(settings: &mut Settings) {
    const PORTION: NonZeroU32 = NonZeroU32::new(60).unwrap();
    if settings.origin("export.to") != Origin::Default {
        return;
    }
    let directory = settings.config.data_dir.join(EXPORT);
    settings.config.export.to = directory.to_string_lossy().into_owned();
    if settings.origin("export.ledgers_per_file") == Origin::Default {
        settings.config.export.ledgers_per_file = PORTION;
    }
    if settings.origin("export.programs") == Origin::Default {
        // SQL has their rows anyway.
        settings.config.export.programs = false;
    }
}

/// Parses the time between two ledgers.
fn milliseconds(text: &str) -> Result<u64, String> {
    let given = text.parse().ok().filter(|given| (20..=3_600_000).contains(given));
    given.ok_or_else(|| "give milliseconds from 20 to 3600000, such as 1000".to_owned())
}

/// Creates a directory that is removed when the demo ends; `None` when a data directory was
/// configured.
fn temporary_directory(settings: &Settings) -> Result<Option<TempDir>, Failure> {
    if settings.origin("data_dir") != Origin::Default {
        return Ok(None);
    }
    let made = tempfile::Builder::new().prefix("orrery-demo-").tempdir();
    let failed = |error| Failure::failed(format!("cannot make a temporary directory: {error}"));
    made.map(Some).map_err(failed)
}

async fn demonstrate(
    node: Arc<Node>,
    settings: &Settings,
    told: Told,
    opening: source::Opening,
    new: &mut NewDirectory,
    patience: Patience,
) -> Result<(), Failure> {
    let store = node.store();
    let close_time = opening.close_time;
    let mut stop = stop_on_signal()?;
    let sockets = service::listen(settings.config.http.listen, store.directory()).await?;
    new.keep();
    let address = sockets.address;
    let config = &with_links(settings, address)?;
    node.listening_on(address);
    let stored = store.status().latest();
    let opened = source::open(store.directory(), store.network(), stored, opening)?;
    let sandbox = RunningSandbox::new(opened.live, close_time);
    let tokens = Arc::new(service::open_tokens(store.directory(), store.network(), &config.auth)?);
    let service = Service::open(Arc::clone(&node), config, None, stop.clone()).await?;
    let example = tokens.issue(&IssueRequest::for_owner(OWNER))?.token;
    let service = service.with_sandbox(sandbox).with_example_token(&example);
    let programs = Arc::clone(&service.programs);
    let (contracts, factory) = (opened.contracts, opened.factory);
    let market = Sandbox::market_contract(store.network()).map_err(SandboxNetworkError::from)?;
    run_blocking({
        let programs = Arc::clone(&programs);
        move || Projects { market, contracts, factory }.make(&programs)
    })
    .await?;
    let running = service::run_opened(
        service,
        Arc::clone(&tokens),
        config,
        sockets,
        Some(Following::new(
            vec![Candidate::new("sandbox", Box::new(opened.source))],
            StartPoint::Oldest,
        )),
        service::sources::opener(config, &node),
        stop.clone(),
    );
    let tables = first_tables(factory.is_some() && stored.is_none());
    let welcome = async {
        // Whatever the text below suggests has an answer when it is printed.
        if first_ledgers(&node, &mut stop).await?
            && first_rows(&programs, tables, &mut stop).await?
        {
            drop(patience);
            let welcome =
                Welcome::new(address, example, &node, (market, factory), close_time, told.kept)?;
            if told.json { welcome.print_json() } else { output::print(&welcome.text()) }?;
        }
        let _shown = LiveLine::begin(&node, config);
        std::future::pending::<Result<(), Failure>>().await
    };
    tokio::select! {
        ended = running => Ok(ended?),
        failed = welcome => failed,
    }
}

/// Returns the configuration with an address for the links in messages, if none is configured: chats on this
/// machine reach the demo's site.
fn with_links(settings: &Settings, address: SocketAddr) -> Result<Config, Failure> {
    let mut config = settings.config.clone();
    if settings.origin("http.public_url") == Origin::Default {
        let site = format!("http://{}", on_this_machine(address));
        config.http.public_url = PublicUrl::try_from(site).map_err(Failure::failed)?;
    }
    Ok(config)
}

/// Runs blocking work on tokio's pool of blocking threads.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Failure::failed(format!("a task of the demo failed: {error}")))?
}

/// Waits until each of some tables has rows. Returns false when the demo is stopped first.
async fn first_rows(
    programs: &Arc<Programs>,
    tables: Vec<String>,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool, Failure> {
    for table in tables {
        if !first_rows_of(programs, &table, stop).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until a table has rows. Returns false when the demo is stopped first.
async fn first_rows_of(
    programs: &Arc<Programs>,
    table: &str,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool, Failure> {
    let start = Instant::now();
    loop {
        let programs = Arc::clone(programs);
        let query = QueryRequest {
            query: format!("select _ledger from {table} limit 1"),
            ..QueryRequest::default()
        };
        let answer =
            run_blocking(move || Ok(programs.query(&Owner(OWNER.to_owned()), query, &|| false)))
                .await?;
        let trouble = match answer {
            Ok(answer) if answer.bytes.as_slice() != b"[]" => return Ok(true),
            Ok(_) => "no row was written".to_owned(),
            // Tables cannot be queried while they are being filled after a start.
            Err(error) => error.to_string(),
        };
        if start.elapsed() > FIRST_LEDGERS_TIMEOUT {
            let sentence =
                format!("the demo's table {table} has no rows within a minute: {trouble}");
            return Err(Failure::failed(sentence));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(false),
        }
    }
}

/// Waits until [`MIN_EVENTS`] events have been stored. Returns false when the demo is stopped
/// first.
async fn first_ledgers(node: &Node, stop: &mut watch::Receiver<bool>) -> Result<bool, Failure> {
    let start = Instant::now();
    loop {
        // Event ids keep counting up when retention removes events.
        if node.store().status().last_event_id.0 >= MIN_EVENTS {
            return Ok(true);
        }
        if let Some((name, reason)) = node.health().first_down() {
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
