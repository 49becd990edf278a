//! Routes of custom indexing programs: the call of [`orrery_programs`] behind each, and the JSON of
//! its result.

mod body;
mod records;
mod selectors;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::answer::Answer;
use super::call::{Body, OwnerCall};
use super::members::Members;
use super::params::path_number;
use super::request_body::{LARGEST_BODY, LARGEST_UPLOAD};
use super::route::{OwnerHandler, Route, Work};
use super::{ApiError, Deps};
use orrery_auth::{Area, Right, Scope};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, ProgramId};
use orrery_programs::backfill::Backfill;
use orrery_programs::manifest::Manifest;
use orrery_programs::records::{RunSource, StatsQuery};
use orrery_programs::{Deploy, Selectors, Trial};

/// Default and maximum number of executions on a page (interface, section Limits).
const DEFAULT_EXECUTIONS: usize = 50;
const MAX_EXECUTIONS: usize = 200;
/// Default and maximum number of ledgers on a page of stats.
const DEFAULT_STATS: usize = 100;
const MAX_STATS: usize = 1000;

/// Header of the answer to a query: the newest ledger in it.
const AS_OF_LEDGER: &str = "orrery-as-of-ledger";
/// Header of the answer to a query: the ledger up to which the tables of projects have their rows.
const TABLES_LEDGER: &str = "orrery-tables-ledger";

const READ: Right = Right { area: Area::Programs, scope: Scope::Read };
const DEPLOY: Right = Right { area: Area::Programs, scope: Scope::Deploy };

/// Declares a GET route that is answered from the store, with a readers slot: it does not queue
/// behind work that may take seconds.
const fn read(template: &'static str, handler: OwnerHandler) -> Route {
    Route::new("GET", template, Work::own_read(READ, handler))
}

/// Declares a POST route with a small body.
const fn post(template: &'static str, work: Work) -> Route {
    Route::new("POST", template, work).with_body(LARGEST_BODY)
}

/// Declares a POST route that changes programs.
const fn change(template: &'static str, handler: OwnerHandler) -> Route {
    post(template, Work::change(DEPLOY, handler))
}

/// Declares a DELETE route of programs.
const fn removal(template: &'static str, handler: OwnerHandler) -> Route {
    Route::new("DELETE", template, Work::change(DEPLOY, handler))
}

/// Declares a POST route whose body contains a module.
const fn upload(template: &'static str, handler: OwnerHandler) -> Route {
    post(template, Work::upload(DEPLOY, handler)).with_body(LARGEST_UPLOAD)
}

/// Parses a body of the given media type like the deploy route, for a fuzz target. Must be called
/// within a Tokio runtime.
///
/// # Errors
/// [`ApiError::Body`], [`ApiError::UnknownParameter`] and [`ApiError::BodyTooLarge`].
pub fn read_deploy(content_type: Option<&str>, body: &Bytes) -> Result<Deploy, ApiError> {
    body::deploy(Body::new(body, content_type))
}

/// Parses a body of the given media type like the trial route, for a fuzz target. Must be called
/// within a Tokio runtime.
///
/// # Errors
/// [`ApiError::Body`], [`ApiError::UnknownParameter`] and [`ApiError::BodyTooLarge`].
pub fn read_trial(content_type: Option<&str>, body: &Bytes) -> Result<Trial, ApiError> {
    body::trial(Body::new(body, content_type))
}

/// Routes of this area. Literal paths take precedence over templates with `{id}` in their place.
pub(super) static ROUTES: [Route; 18] = [
    upload("/rest/retroshade/deploy", deploy),
    upload("/rest/retroshade/watch", watch),
    upload("/rest/retroshade/try", try_out),
    change("/rest/retroshade/append-contracts", append),
    // A subscription counts against the owner's limit, so the scope `read` does not suffice.
    change("/rest/retroshade/subscribe", subscribe),
    change("/rest/retroshade/unsubscribe", unsubscribe),
    post("/rest/retroshade/query", Work::query(READ, query)),
    read("/rest/retroshade/tables", tables),
    read("/rest/retroshade/list", list),
    removal("/rest/retroshade/{id}", delete),
    read("/rest/retroshade/{id}/status", status),
    read("/rest/retroshade/{id}/executions", executions).with_parameters(&["limit", "from_ledger"]),
    read("/rest/retroshade/{id}/stats", stats).with_parameters(&["source", "from", "to", "limit"]),
    change("/rest/retroshade/{id}/pause", pause),
    change("/rest/retroshade/{id}/resume", resume),
    change("/rest/retroshade/{id}/backfill", begin_backfill),
    read("/rest/retroshade/{id}/backfill", backfill),
    removal("/rest/retroshade/{id}/backfill", cancel_backfill),
];

fn deploy(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let wanted = body::deploy(call.body)?;
    Ok(Answer::of(&Deployed::of(&deps.programs.deploy(call.owner, wanted)?)))
}

fn watch(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let wanted = body::watch(call.body)?;
    let manifest = deps.programs.watch(call.owner, wanted)?;
    Ok(Answer::of(&Watched { deployed: Deployed::of(&manifest), selectors: selected(&manifest) }))
}

fn append(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (id, contracts) = body::append(call.body)?;
    let manifest = deps.programs.append(call.owner, id, contracts)?;
    Ok(Answer::of(&json!({ "program_id": id, "contracts": texts(&manifest) })))
}

fn delete(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let id = program_id(call)?;
    deps.programs.delete(call.owner, id)?;
    deps.webhooks.end_unreadable()?;
    Ok(Answer::of(&json!({ "deleted": id })))
}

fn query(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let request = body::query(call.body)?;
    let found = deps.programs.query(call.owner, request, &|| call.waiting.is_abandoned())?;
    let ledgers = [(AS_OF_LEDGER, found.as_of), (TABLES_LEDGER, found.tables_ledger)];
    let headers = ledgers.into_iter().filter_map(|(name, it)| Some((name, it?.to_string())));
    let headers = headers.collect();
    Ok(Answer { media_type: found.media_type, headers, ..Answer::json(found.bytes) })
}

fn tables(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let tables = deps.programs.tables(call.owner);
    Ok(Answer::of(&tables.iter().map(records::TableRecord::from).collect::<Vec<_>>()))
}

fn subscribe(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let manifest = deps.programs.subscribe(call.owner, &body::project(call.body)?)?;
    Ok(Answer::of(&Subscribed { project: &manifest.project_name, tables: manifest.table_names() }))
}

fn unsubscribe(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let manifest = deps.programs.unsubscribe(call.owner, &body::project(call.body)?)?;
    deps.webhooks.end_unreadable()?;
    Ok(Answer::of(&json!({ "unsubscribed": manifest.project_name })))
}

fn list(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let manifests = deps.programs.list(call.owner);
    Ok(Answer::of(&manifests.iter().map(Listed::of).collect::<Vec<_>>()))
}

fn status(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let status = deps.programs.status(call.owner, program_id(call)?)?;
    Ok(Answer::of(&status))
}

fn executions(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let id = program_id(call)?;
    let query = call.query;
    let limit = query.limit(DEFAULT_EXECUTIONS, MAX_EXECUTIONS)?;
    let last = query.number("from_ledger", u64::from(u32::MAX))?;
    let last = last.map(|last| LedgerSeq(u32::try_from(last).unwrap_or(u32::MAX)));
    let found = deps.programs.executions(call.owner, id, last, limit)?;
    Ok(Answer::of(&found.iter().map(records::ExecutionRecord::from).collect::<Vec<_>>()))
}

fn stats(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let id = program_id(call)?;
    let query = call.query;
    let sources = [("live", RunSource::Live), ("backfill", RunSource::Backfill)];
    let wanted = StatsQuery {
        source: query.word("source", &sources)?,
        ledgers: query.ledgers()?.unwrap_or(LedgerRange::new(0, u32::MAX)),
        limit: query.limit(DEFAULT_STATS, MAX_STATS)?,
    };
    let found = deps.programs.stats(call.owner, id, &wanted)?;
    Ok(Answer::of(&found.iter().map(records::StatsRecord::from).collect::<Vec<_>>()))
}

fn pause(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Members::none(call.body)?;
    let id = program_id(call)?;
    Ok(Answer::of(&Listed::of(&deps.programs.set_running(call.owner, id, false)?)))
}

fn resume(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Members::none(call.body)?;
    let id = program_id(call)?;
    Ok(Answer::of(&Listed::of(&deps.programs.set_running(call.owner, id, true)?)))
}

fn begin_backfill(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let id = program_id(call)?;
    let ledgers = body::backfill(call.body, deps.store.ends().latest)?;
    Ok(Answer::of(&progress(&deps.programs.begin_backfill(call.owner, id, ledgers)?)))
}

fn backfill(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::of(&progress(&deps.programs.backfill(call.owner, program_id(call)?)?)))
}

fn cancel_backfill(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::of(&progress(&deps.programs.cancel_backfill(call.owner, program_id(call)?)?)))
}

fn try_out(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let trial = body::trial(call.body)?;
    let tried = deps.programs.try_out(call.owner, trial, &|| call.waiting.is_abandoned())?;
    Ok(Answer::of(&records::TrialRecord::from(tried)))
}

/// Item of `GET /rest/retroshade/list`. Fields after the fourth are additive.
#[derive(Serialize)]
struct Listed<'a> {
    id: ProgramId,
    project_name: &'a str,
    contracts: Vec<String>,
    running: bool,
    /// `events` for a project of events, `program` for one with code.
    kind: &'static str,
    public: bool,
    tables: Vec<String>,
    /// What selects contracts of a project of events beside those.
    #[serde(skip_serializing_if = "Option::is_none")]
    selectors: Option<&'a Selectors>,
    /// Project whose name the program is to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<&'a str>,
    /// Why the program was stopped, unless its owner paused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_because: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn of(manifest: &'a Manifest) -> Self {
        Self {
            id: manifest.id,
            project_name: &manifest.project_name,
            contracts: texts(manifest),
            running: manifest.running,
            kind: if manifest.events.is_some() { "events" } else { "program" },
            public: manifest.public,
            tables: manifest.table_names(),
            selectors: manifest.events.as_ref().map(|_| selected(manifest)),
            replaces: manifest.replaces.as_ref().map(|it| it.project_name.as_str()),
            stopped_because: manifest.stopped_because.as_deref(),
        }
    }
}

/// Response to `POST /rest/retroshade/subscribe`.
#[derive(Serialize)]
struct Subscribed<'a> {
    project: &'a str,
    tables: Vec<String>,
}

/// Response to `POST /rest/retroshade/deploy`.
#[derive(Serialize)]
struct Deployed<'a> {
    id: ProgramId,
    project_name: &'a str,
    contracts: Vec<String>,
    running: bool,
    tables: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<&'a str>,
}

impl<'a> Deployed<'a> {
    fn of(manifest: &'a Manifest) -> Self {
        let Listed { id, project_name, contracts, running, tables, replaces, .. } =
            Listed::of(manifest);
        Self { id, project_name, contracts, running, tables, replaces }
    }
}

/// Response to `POST /rest/retroshade/watch`.
#[derive(Serialize)]
struct Watched<'a> {
    #[serde(flatten)]
    deployed: Deployed<'a>,
    selectors: &'a Selectors,
}

/// Returns what selects contracts of a project beside those that it names.
fn selected(manifest: &Manifest) -> &Selectors {
    static NONE: std::sync::LazyLock<Selectors> = std::sync::LazyLock::new(Selectors::default);
    manifest.events.as_ref().map_or(&*NONE, |project| &project.selectors)
}

fn texts(manifest: &Manifest) -> Vec<String> {
    manifest.contracts.iter().map(ToString::to_string).collect()
}

fn progress(backfill: &Backfill) -> serde_json::Value {
    json!({
        "program_id": backfill.program,
        "from": backfill.ledgers.first.0,
        "to": backfill.ledgers.last.0,
        "next": backfill.next.0,
        "state": backfill.state.name(),
        "ledgers_done": backfill.done(),
        "ledgers": backfill.wanted(),
        "ledgers_missing": backfill.missing(),
        "missing_ledgers": backfill.missing_ledgers,
        "executions": backfill.executions,
        "errors": backfill.errors,
        "rows_written": backfill.rows,
        "message": backfill.message,
    })
}

fn program_id(call: &OwnerCall<'_>) -> Result<ProgramId, ApiError> {
    path_number("id", call.path.get("id")).map(ProgramId)
}
