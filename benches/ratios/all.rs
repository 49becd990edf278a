//! All goals: their modules, the arguments, and which module measures which goals. The bench is one
//! root of these modules, the other is the test that runs every goal at its smallest size; each says
//! with its constant `SMALLEST` which of the two it is.

mod amplify;
mod attacked;
mod backfills;
#[path = "../baseline/mod.rs"]
mod baseline;
mod bucket;
mod calls;
mod catch_up;
mod chain;
mod checks;
mod client;
mod conditions;
mod copied;
mod declaring;
mod dense;
mod deposits;
mod fills;
mod full_network;
mod held;
mod http;
mod indexing;
mod ingest;
mod large_accounts;
mod long_import;
mod lookups;
mod many;
mod measure;
mod members;
mod named;
mod neighbours;
mod packed;
mod pages;
mod process;
mod pushes;
mod recorded;
mod report;
mod rows;
mod rpc;
mod running;
mod runs;
mod scale;
mod sink;
mod size;
mod snapshots;
mod sql;
mod stores;
mod streams;
mod subscribers;
mod supplied;
mod swaps;
mod upstream;
mod variants;
mod variation;
mod visible;
mod webhooks;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use orrery::decode::decode;
use recorded::Recorded;
pub use report::Report;
use stellar_xdr::LedgerCloseMeta;

/// Measure the goals that are ratios.
#[derive(Parser)]
pub struct Arguments {
    /// Goals to measure, such as P1; all when none is given
    goals: Vec<String>,
    /// Events in the large store
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Events in the stores that are compared with SQLite
    #[arg(long, default_value_t = 1_000_000)]
    compared_events: u64,
    /// Ledgers with costly events
    #[arg(long, default_value_t = 1_000)]
    attacked_ledgers: u64,
    /// Events of a project of events
    #[arg(long, default_value_t = 1_000_000)]
    fill_events: u64,
    /// Keys of the contract with many keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Copies of the recorded ledgers of the long import; 100 are 15 million events
    #[arg(long, default_value_t = long_import::COPIES)]
    import_copies: u64,
    /// A file of options of RocksDB with which the long import is repeated
    #[arg(long)]
    variants: Option<PathBuf>,
    /// Numbers of events at which `scale` measures, ascending
    #[arg(long, value_delimiter = ',', default_values_t = scale::SIZES)]
    scale: Vec<u64>,
    /// Instead of measuring, write the ledgers of P30 to this directory, for `orrery import`
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Minutes of a network that is full
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// Where the figures are written
    #[arg(long, default_value = "ratios.json")]
    json: PathBuf,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn wants(&self, goal: &str) -> bool {
        self.goals.is_empty() || self.goals.iter().any(|wanted| wanted.eq_ignore_ascii_case(goal))
    }

    /// Whether a goal is named. Those that take hours are measured on demand only.
    fn names(&self, goal: &str) -> bool {
        !self.goals.is_empty() && self.wants(goal)
    }

    fn wants_any(&self, goals: &[&str]) -> bool {
        goals.iter().any(|goal| self.wants(goal))
    }
}

/// Measures what the command line asks for. Fails if a goal misses its floor.
pub fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The program itself does this too; it benefits both sides of each ratio.
    orrery::process::keep_freed_memory();
    let arguments = Arguments::parse();
    let data = recorded::directory();
    if !data.is_dir() {
        eprintln!("skipped: there are no recorded ledgers in {}", data.display());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(kept) = &arguments.keep {
        fills::keep(&recorded::public(&data)?, arguments.fill_events, kept)?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory = tempfile::Builder::new().prefix("orrery-ratios-").tempdir()?;
    let mut report = Report::default();
    let measured = measure(&arguments, &data, directory.path(), &mut report);
    report.print();
    report.write(&arguments.json)?;
    measured?;
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("\nbelow the floor: {}", missed.join("; "));
    Ok(ExitCode::FAILURE)
}

/// Measures the goals that the arguments name, in a directory, with the recorded ledgers of another
/// one.
///
/// # Errors
/// The first goal that cannot be measured.
pub fn measure(
    arguments: &Arguments,
    data: &Path,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let public = recorded::public(data)?;
    if arguments.wants_any(&["P1", "P2", "P3", "catch-up"]) {
        ingest::run(&public, |goal| arguments.wants(goal), directory, report)?;
        let synthetic = recorded::synthetic(data)?;
        ingest::run(&synthetic, |goal| arguments.wants(goal), directory, report)?;
    }
    if arguments.wants("P29") {
        checks::run(&public, directory, report)?;
    }
    if arguments.wants("dense") {
        dense::run(&public, directory, report)?;
    }
    if arguments.wants("import") {
        let variants = variants::read(arguments.variants.as_deref())?;
        long_import::run(&public, arguments.import_copies, &variants, directory, report)?;
    }
    if arguments.wants_any(&["P32", "P33"]) {
        held::run(&public, arguments.keys, |goal| arguments.wants(goal), directory, report)?;
    }
    if arguments.wants("full-network") {
        full_network::run(&public, arguments.minutes, directory, report)?;
    }
    if arguments.wants("lookups") {
        lookups::run(&public, directory, report)?;
    }
    if arguments.wants("large-accounts") {
        large_accounts::run(&public, directory, report)?;
    }
    if arguments.wants("snapshots") {
        snapshots::run(&public, directory, report)?;
    }
    programs(arguments, data, &public, directory, report)?;
    pushes(arguments, &public, directory, report)?;
    queries(arguments, &public, directory, report)
}

/// Measures the goals of indexing programs and their tables.
fn programs(
    arguments: &Arguments,
    data: &Path,
    public: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let wanted = |goal: &str| arguments.wants(goal);
    if arguments.wants_any(&["P13", "P14", "run"]) {
        runs::run(wanted, data, report)?;
    }
    if arguments.wants_any(&["P15", "P16"]) {
        rows::run(wanted, directory, report)?;
    }
    if arguments.wants_any(&["P17", "P18"]) {
        sql::run(wanted, directory, report)?;
    }
    if arguments.wants("P21") {
        visible::run(public, directory, report)?;
    }
    if arguments.wants_any(&["P22", "neighbours"]) {
        neighbours::run(public, wanted, directory, report)?;
    }
    if arguments.wants("upstream") {
        upstream::run(public, directory, report)?;
    }
    if arguments.wants("P30") {
        fills::run(public, arguments.fill_events, directory, report)?;
    }
    if arguments.wants_any(&["P31", "by-address"]) {
        named::run(public, wanted, directory, report)?;
    }
    if arguments.wants("members") {
        members::run(public, directory, report)?;
    }
    if arguments.wants("conditions") {
        conditions::run(report);
    }
    if arguments.wants("backfills") {
        backfills::run(public, directory, report)?;
    }
    if arguments.wants("attacked") {
        attacked::run(arguments.attacked_ledgers, directory, report)?;
    }
    if arguments.wants("supplied") {
        supplied::run(directory, report)?;
    }
    if arguments.wants("sinks") {
        copied::run(public, directory, report)?;
    }
    Ok(())
}

/// Measures the goals of webhooks and event streams.
fn pushes(
    arguments: &Arguments,
    public: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let wanted = |goal: &str| arguments.wants(goal);
    if arguments.wants_any(&["P19", "P20", "webhooks"]) {
        webhooks::run(public, wanted, directory, report)?;
    }
    if arguments.wants("subscribers") {
        subscribers::run(public, directory, report)?;
    }
    if arguments.wants("streams") {
        streams::run(public, directory, report)?;
    }
    Ok(())
}

/// Measures the goals that use generated events.
fn queries(
    arguments: &Arguments,
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    const OF_ONE_STORE: [&str; 7] = ["P7", "P8", "P11", "P12", "P23", "P24", "chain"];
    if !arguments.wants_any(&[&OF_ONE_STORE[..], &["P5", "P6", "P9", "rpc", "scale"]].concat()) {
        return Ok(());
    }
    let network = &recorded.network;
    let regulars = amplify::regulars(recorded);
    let xdr: Vec<Vec<u8>> =
        recorded.ledgers.iter().map(|l| recorded::xdr(&LedgerCloseMeta::V2(l.clone()))).collect();
    let views = xdr.iter().map(|xdr| decode(xdr, network.id())).collect::<Result<_, _>>()?;
    let generator = many::Generator::new(views, &regulars);
    let wanted = |goal: &str| arguments.wants(goal);

    if arguments.names("scale") {
        scale::run(&generator, network, &arguments.scale, directory, report)?;
    }
    if arguments.wants_any(&["P5", "P6"]) {
        size::run(&generator, network, arguments.compared_events, directory, report)?;
    }
    if arguments.wants("P9") {
        http::against_sqlite(&generator, network, arguments.compared_events, directory, report)?;
    }
    if arguments.wants("rpc") {
        rpc::events(&generator, network, arguments.compared_events, directory, report)?;
        rpc::transaction(recorded, directory, report)?;
    }
    if !arguments.wants_any(&OF_ONE_STORE) {
        return Ok(());
    }
    let filled = stores::Filled::new(&generator, network, arguments.events, directory, report);
    let questions = filled.sample();
    if arguments.wants_any(&["P7", "P8"]) {
        http::against_no_op(&filled, &questions, wanted, report)?;
    }
    if arguments.wants("P11") {
        pages::worst_page(&filled, &questions, report);
    }
    if arguments.wants("P12") {
        pages::serialization(&filled.store, &questions, report);
    }
    if arguments.wants("chain") {
        chain::run(&filled, directory, report)?;
    }
    if arguments.wants_any(&["P23", "P24"]) {
        process::run(filled, &questions, &generator, wanted, directory, report)?;
    }
    Ok(())
}
