//! One query, from the parent's side: given to the owner's worker, waited for, and ended when its time is up
//! or nobody waits any more.

use std::time::{Duration, Instant};

use super::TablesError;
use super::owners::Slot;
use super::process::{Asked, NoReply};
use super::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};
use super::wire::{Failure, Question, Reply, Request};

/// After its time is up, a query has so long to end before its process is killed.
const GRACE: Duration = Duration::from_secs(2);
/// Between two looks whether anybody waits for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Bytes of a refusal: DuckDB quotes the line that it is about.
const LONGEST_SENTENCE: usize = 8 << 10;

/// Answers a query once the tables are `ready`, unless it is interrupted.
pub(super) fn ask(
    slot: &Slot,
    request: QueryRequest,
    ready: impl FnOnce() -> Result<(), QueryError>,
    interrupted: Interrupted<'_>,
) -> Result<QueryAnswer, QueryError> {
    let limits = &slot.settings.limits;
    if request.query.len() > limits.text {
        return Err(QueryError::Refused(format!(
            "The query is {} bytes long; it may have {}",
            request.query.len(),
            limits.text
        )));
    }
    let Some(_asking) = slot.begin_asking() else {
        return Err(QueryError::Busy(limits.at_a_time));
    };
    ready()?;
    // Who asks has nothing from the details, which may tell where files are.
    let unavailable = |error: TablesError| {
        tracing::warn!(owner = %slot.owner, %error, "a query cannot be answered");
        QueryError::Unavailable(match error {
            TablesError::AllPlacesTaken(_) => format!("{error}, and none became free in time"),
            _ => "The tables cannot be read right now".to_owned(),
        })
    };
    let worker = slot.running().map_err(unavailable)?;
    if let Some(lack) = slot.confinement_of(&worker).lack()
        && !slot.settings.allow_unconfined
    {
        return Err(QueryError::Unconfined(lack));
    }
    if slot.is_incomplete() {
        return Err(QueryError::Unavailable("The tables are being built anew".to_owned()));
    }
    let format = request.format;
    let question = Question {
        sql: request.query,
        params: request.params,
        rows: request.max_rows.unwrap_or(limits.rows).min(limits.rows),
        bytes: limits.bytes,
        milliseconds: u64::try_from(limits.time.as_millis()).unwrap_or(u64::MAX),
        numbers: request.numbers,
        format,
    };
    let timed_out = || QueryError::TimedOut(limits.time);
    let asked = match worker.ask(&Request::Query(question), &[], limits.time) {
        Ok(asked) => asked,
        Err(_) => return Err(unavailable(slot.lost(&worker))),
    };
    let mut was_interrupted = false;
    let reply = match wait(&asked, limits.time + GRACE, interrupted) {
        Waited::Done(reply) => reply,
        Waited::Interrupted => {
            was_interrupted = true;
            asked.cancel().and_then(|()| asked.next(GRACE))
        }
    };
    match reply {
        // Whatever it has come to.
        Ok((Reply::Answered, _)) | Ok((Reply::Failed(Failure::TimedOut), _)) if was_interrupted => {
            Err(QueryError::Interrupted)
        }
        Ok((Reply::Answered, bytes)) => Ok(QueryAnswer { bytes, media_type: format.media_type() }),
        Ok((Reply::Failed(Failure::Refused(message)), _)) => {
            Err(QueryError::Refused(shortened(message)))
        }
        Ok((Reply::Failed(Failure::TooLarge(message)), _)) => {
            Err(QueryError::TooLarge(shortened(message)))
        }
        Ok((Reply::Failed(Failure::TimedOut), _)) => Err(timed_out()),
        Ok((reply, _)) => Err(unavailable(slot.failed(&worker, reply))),
        Err(NoReply::Late) => {
            worker.kill();
            Err(if was_interrupted { QueryError::Interrupted } else { timed_out() })
        }
        Err(NoReply::Gone) => Err(unavailable(slot.lost(&worker))),
    }
}

/// How a wait for the answer to a query ended.
enum Waited {
    Done(Result<(Reply, Vec<u8>), NoReply>),
    Interrupted,
}

fn wait(asked: &Asked<'_>, within: Duration, interrupted: Interrupted<'_>) -> Waited {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match asked.next(left.min(LOOK_EVERY)) {
            Err(NoReply::Late) if left <= LOOK_EVERY => return Waited::Done(Err(NoReply::Late)),
            Err(NoReply::Late) if interrupted() => return Waited::Interrupted,
            Err(NoReply::Late) => {}
            reply => return Waited::Done(reply),
        }
    }
}

/// A sentence that a worker says, which may be broken, as far as a reader would read it.
fn shortened(mut sentence: String) -> String {
    if sentence.len() > LONGEST_SENTENCE {
        let end = (0..=LONGEST_SENTENCE).rev().find(|end| sentence.is_char_boundary(*end));
        sentence.truncate(end.unwrap_or(0));
        sentence.push('…');
    }
    sentence
}
