//! The parent's side of a query: sends it to the owner's worker, waits for the answer, cancels it
//! when the client no longer waits, and kills the worker when the query does not end in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chain::{ChainSnapshot, ChainTable};
use super::error::TablesError;
use super::owners::OwnerTables;
use super::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
use super::wire::{Failure, QuerySpec, Reply};
use super::worker_process::{NoReply, PendingReply, Worker};

/// Time that a query has to end after its deadline or its cancellation, before its process is
/// killed.
const GRACE: Duration = Duration::from_secs(2);
/// Interval between two checks whether the client still waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum length of an error message in bytes: DuckDB quotes the offending line.
const LONGEST_SENTENCE: usize = 8 << 10;

/// Answers a query once the tables are `ready`, unless it is interrupted.
pub(super) fn run_query(
    tables: &OwnerTables,
    request: QueryRequest,
    ready: impl FnOnce() -> Result<(), QueryError>,
    interrupted: Interrupted<'_>,
) -> Result<QueryAnswer, QueryError> {
    let limits = &tables.settings.queries;
    let longest = limits.text_kib.bytes();
    if request.query.len() as u64 > longest {
        return Err(QueryError::Refused(format!(
            "The query is {} bytes long; it may have {longest}",
            request.query.len()
        )));
    }
    let Some(_running_query) = tables.begin_query() else {
        return Err(QueryError::Busy(limits.at_a_time.get() as usize));
    };
    ready()?;
    let chain = chain_snapshot(tables, &request.query, interrupted)?;
    let worker = worker_for(tables, chain.as_ref())?;
    let (time, format) = (limits.query_ms.duration(), request.format);
    let query = spec(tables, request);
    let timed_out = || QueryError::TimedOut(time);
    let pending = match worker.send_query(query, chain.as_ref(), time) {
        Ok(pending) => pending,
        Err(_) => return Err(unavailable(tables, &tables.lost(&worker))),
    };
    let mut was_interrupted = false;
    let reply = match wait(&pending, time + GRACE, interrupted) {
        WaitOutcome::Done(reply) => reply,
        WaitOutcome::Interrupted => {
            was_interrupted = true;
            pending.cancel().and_then(|()| pending.next(GRACE))
        }
    };
    match reply {
        // The query was cancelled: its result no longer matters.
        Ok((Reply::Answered, _)) | Ok((Reply::Failed(Failure::TimedOut), _)) if was_interrupted => {
            Err(QueryError::Interrupted)
        }
        Ok((Reply::Answered, bytes)) => Ok(QueryAnswer {
            bytes,
            media_type: format.media_type(),
            chain_ledger: chain.and_then(|snapshot| snapshot.newest),
        }),
        Ok((Reply::Failed(Failure::Refused(message)), _)) => {
            Err(QueryError::Refused(shortened(message)))
        }
        Ok((Reply::Failed(Failure::TooLarge(message)), _)) => {
            Err(QueryError::TooLarge(shortened(message)))
        }
        Ok((Reply::Failed(Failure::Unreadable(sentence)), _)) => {
            Err(QueryError::Unavailable(sentence))
        }
        Ok((Reply::Failed(Failure::TimedOut), _)) => Err(timed_out()),
        Ok((reply, _)) => Err(unavailable(tables, &tables.failed(&worker, reply))),
        Err(NoReply::TimedOut) => {
            worker.kill();
            Err(if was_interrupted { QueryError::Interrupted } else { timed_out() })
        }
        Err(NoReply::WorkerEnded) => Err(unavailable(tables, &tables.lost(&worker))),
    }
}

/// The details are logged and not returned: they may reveal paths, and the client cannot use them.
fn unavailable(tables: &OwnerTables, error: &TablesError) -> QueryError {
    tracing::warn!(owner = %tables.owner, %error, "a query cannot be answered");
    QueryError::Unavailable(match error {
        TablesError::AllWorkersBusy(_) => format!("{error}, and none became free in time"),
        _ => "The tables cannot be read right now".to_owned(),
    })
}

/// Returns the worker that answers a query over these tables of the chain, if it may.
fn worker_for(
    tables: &OwnerTables,
    chain: Option<&ChainSnapshot>,
) -> Result<Arc<Worker>, QueryError> {
    let worker = match chain {
        Some(snapshot) => tables.worker_that(|worker| worker.reads(snapshot)),
        None => tables.running_worker(),
    };
    let worker = worker.map_err(|error| unavailable(tables, &error))?;
    if let Some(lack) = tables.confinement_of(&worker).missing()
        && !tables.settings.queries.allow_unconfined
    {
        return Err(QueryError::Unconfined(lack));
    }
    if tables.is_incomplete() {
        return Err(QueryError::Unavailable("The tables are being rebuilt".to_owned()));
    }
    Ok(worker)
}

/// Returns a query with the limits of the settings.
fn spec(tables: &OwnerTables, request: QueryRequest) -> QuerySpec {
    let limits = &tables.settings.queries;
    let (rows, time) = (limits.rows.get() as usize, limits.query_ms.duration());
    QuerySpec {
        sql: request.query,
        params: request.params,
        rows: request.max_rows.unwrap_or(rows).min(rows),
        bytes: limits.answer_mib.bytes() as usize,
        milliseconds: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        numbers: request.numbers,
        format: request.format,
        chain: None,
    }
}

/// Returns what a query finds in the tables of the chain; `None` when it reads none.
fn chain_snapshot(
    tables: &OwnerTables,
    sql: &str,
    interrupted: Interrupted<'_>,
) -> Result<Option<ChainSnapshot>, QueryError> {
    let chain = tables.settings.chain.as_ref();
    let is_read = |table: &ChainTable| table.may_be_in(sql);
    match chain.filter(|chain| chain.tables().iter().any(is_read)) {
        Some(chain) => chain.snapshot(&is_read, interrupted).map(Some),
        None => Ok(None),
    }
}

/// Outcome of waiting for the answer to a query.
enum WaitOutcome {
    Done(Result<(Reply, Vec<u8>), NoReply>),
    Interrupted,
}

fn wait(
    pending: &PendingReply<'_>,
    timeout: Duration,
    interrupted: Interrupted<'_>,
) -> WaitOutcome {
    let deadline = Instant::now() + timeout;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match pending.next(remaining.min(POLL_INTERVAL)) {
            Err(NoReply::TimedOut) if remaining <= POLL_INTERVAL => {
                return WaitOutcome::Done(Err(NoReply::TimedOut));
            }
            Err(NoReply::TimedOut) if interrupted() => return WaitOutcome::Interrupted,
            Err(NoReply::TimedOut) => {}
            reply => return WaitOutcome::Done(reply),
        }
    }
}

/// Limits the length of a worker's message. A broken worker may send one of any length.
fn shortened(mut sentence: String) -> String {
    if sentence.len() > LONGEST_SENTENCE {
        let end = (0..=LONGEST_SENTENCE).rev().find(|end| sentence.is_char_boundary(*end));
        sentence.truncate(end.unwrap_or(0));
        sentence.push('…');
    }
    sentence
}
