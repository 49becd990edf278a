//! Sends requests to one source and interprets its answers.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use orrery_ledger::domain::{
    Fetched, LedgerRange, LedgerSeq, LedgerSource, Network, RawLedger, SourceError, StartPoint,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Fault, Followed, Follower, Outcome};
use crate::follow::in_flight::Sent;
use crate::follow::member::{Kind, ORDINARY_LAG, Survey, Trouble, ends_far_before};

/// Number of ledgers closed in a day. A network that ends this far before the stored ledgers was
/// reset, and does not merely lag.
const LEDGERS_OF_A_DAY: u32 = 17_280;

/// Returns whether a source with this range lags behind the stored ledgers. An empty range does not
/// count as lagging.
fn lags(range: LedgerRange, next: LedgerSeq) -> bool {
    !range.is_empty() && ends_far_before(range, next)
}

/// How far [`Follower::send`] came.
enum Reached {
    End,
    /// The ledger after the last one sent is missing; this is the first ledger after the gap.
    Gap(LedgerSeq),
    Closed,
    EndOfNumbers(LedgerSeq),
}

impl Follower {
    /// Asks a source for the next ledger needed, and sends what it yields.
    pub(super) async fn fetch_next(
        &mut self,
        index: usize,
        out: &mpsc::Sender<RawLedger>,
    ) -> Result<Outcome, Fault> {
        self.check_network(index).await?;
        let Some(next) = self.next else { return self.determine_start(index).await };
        self.survey(index, next).await?;
        let from = self.members[index].compare.filter(|compare| *compare < next);
        let timer = Instant::now();
        let fetched = match self.call(index, |source| source.fetch(from.unwrap_or(next))).await {
            Err(Fault::Trouble(trouble, _)) if from.is_some() && trouble.kind == Kind::Lacks => {
                // The source does not have the ledger to compare.
                self.members[index].compare = None;
                return Ok(Outcome::Answered);
            }
            fetched => fetched?,
        };
        match fetched {
            Fetched::Ended => Ok(Outcome::Ended(Followed::SourceEnded)),
            Fetched::NotYet if from.is_some() => {
                self.members[index].compare = None;
                Ok(Outcome::Answered)
            }
            Fetched::NotYet => self.at_tip(index, next),
            Fetched::Ledgers(ledgers) => {
                self.reports.metrics.observe_step("fetch", timer.elapsed());
                self.send_fetched(index, ledgers, from, next, out).await
            }
        }
    }

    /// Sends the fetched ledgers, and judges the answer by how far they reach.
    async fn send_fetched(
        &mut self,
        index: usize,
        ledgers: Vec<RawLedger>,
        compare: Option<LedgerSeq>,
        next: LedgerSeq,
        out: &mpsc::Sender<RawLedger>,
    ) -> Result<Outcome, Fault> {
        if let Some(compare) = compare
            && compare.next() != Some(next)
        {
            self.members[index].compare = None;
            let one = ledgers.into_iter().filter(|ledger| ledger.sequence == compare).collect();
            return Ok(match self.send(index, one, compare, compare, out).await {
                Reached::Closed => Outcome::Ended(Followed::ReceiverClosed),
                _ => Outcome::Answered,
            });
        }
        let last = self.task.last.unwrap_or(LedgerSeq(u32::MAX));
        let reached = self.send(index, ledgers, compare.unwrap_or(next), last, out).await;
        let now_next = self.next.unwrap_or(next);
        let progress = now_next > next;
        if progress {
            self.progress = Some(Instant::now());
            self.record_success(index);
            self.raise_tip(index, LedgerSeq(now_next.0 - 1));
        }
        match reached {
            Reached::Closed => Ok(Outcome::Ended(Followed::ReceiverClosed)),
            Reached::EndOfNumbers(last) => Ok(Outcome::EndOfNumbers(last)),
            Reached::End | Reached::Gap(_) if progress => Ok(Outcome::Answered),
            Reached::Gap(beyond) => {
                let name = self.members[index].source.name();
                let skip = format!("{name} skips from ledger {next} to {beyond}");
                Err(Fault::of(Kind::Skips, skip))
            }
            Reached::End if compare.is_some() => {
                self.members[index].compare = None;
                Ok(Outcome::Answered)
            }
            // Only repeats were yielded: there is nothing new yet.
            Reached::End => self.at_tip(index, next),
        }
    }

    /// Sends the ledgers that continue from `from` without a gap, up to `last`, and advances
    /// `self.next` past them.
    async fn send(
        &mut self,
        index: usize,
        mut ledgers: Vec<RawLedger>,
        from: LedgerSeq,
        last: LedgerSeq,
        out: &mpsc::Sender<RawLedger>,
    ) -> Reached {
        ledgers.sort_by_key(|ledger| ledger.sequence);
        let mut due = from;
        for ledger in ledgers {
            if ledger.sequence < due {
                continue;
            }
            if ledger.sequence > due {
                return Reached::Gap(ledger.sequence);
            }
            if due > last {
                return Reached::End;
            }
            let Some(permit) = self.reserve_permit(index, out).await else {
                return Reached::Closed;
            };
            let compared = self.next.is_some_and(|next| due < next);
            self.in_flight.add(Sent { ledger: due, source: index, compared });
            permit.send(ledger);
            match due.next() {
                Some(following) => due = following,
                None => return Reached::EndOfNumbers(due),
            }
            self.next = self.next.max(Some(due));
        }
        Reached::End
    }

    /// Waits for capacity in the channel, and keeps updating the network's tip meanwhile. Returns
    /// `None` when the receiver is dropped.
    async fn reserve_permit<'o>(
        &mut self,
        index: usize,
        out: &'o mpsc::Sender<RawLedger>,
    ) -> Option<mpsc::Permit<'o, RawLedger>> {
        loop {
            let due = self.members[index].survey_due(&self.timing);
            tokio::select! {
                biased;
                permit = out.reserve() => return permit.ok(),
                () = sleep_until(due) => {}
            }
            // A failure is ignored here; the next request runs into it again.
            let range = self.call(index, |source| source.range()).await.ok().flatten();
            let known = range.or(self.members[index].range());
            self.record_range(index, known);
        }
    }

    /// Waits for the network to close the next ledger. Fails if the source announced that ledger,
    /// if the source does not replay ledgers and the task is bounded, or if a source other than the
    /// first is far behind the network's tip.
    fn at_tip(&mut self, index: usize, next: LedgerSeq) -> Result<Outcome, Fault> {
        let member = &mut self.members[index];
        let name = member.source.name();
        let bounded = self.task.last.is_some() && !member.source.replays();
        if let Some(range) = member.range().filter(|range| range.last >= next) {
            member.survey = None;
            let kind = if bounded { Kind::Skips } else { Kind::Fails };
            let reason = format!("{name} has ledger {} but not ledger {next}", range.last);
            return Err(Fault::of(kind, reason));
        }
        let tip = self.reports.health.network_latest();
        let far = tip.is_some_and(|tip| tip.0 > next.0.saturating_add(ORDINARY_LAG));
        if bounded || (index > 0 && far && !member.source.replays()) {
            return Err(Fault::of(Kind::Lacks, format!("{name} does not have ledger {next} yet")));
        }
        let poll = member.source.poll().unwrap_or(self.timing.poll);
        member.delay_until(Instant::now() + poll);
        self.record_success(index);
        self.announce_caught_up(next);
        Ok(Outcome::Answered)
    }

    async fn check_network(&mut self, index: usize) -> Result<(), Fault> {
        if self.members[index].network_checked {
            return Ok(());
        }
        if let Some(passphrase) = self.call(index, |source| source.passphrase()).await? {
            let found = Network::from_passphrase(passphrase);
            if found != self.network {
                let (name, wanted) = (self.members[index].source.name(), &self.network);
                return Err(Fault::of(
                    Kind::OtherNetwork,
                    format!(
                        "{name} yields ledgers of the network {found}, not of {wanted}: correct its \
                         address, or follow {found} with another data directory"
                    ),
                ));
            }
        }
        self.members[index].network_checked = true;
        Ok(())
    }

    /// Determines the first ledger for an empty store.
    async fn determine_start(&mut self, index: usize) -> Result<Outcome, Fault> {
        let next = match self.task.start {
            StartPoint::At(ledger) => Some(ledger),
            StartPoint::Genesis => Some(LedgerSeq::FIRST),
            StartPoint::Oldest | StartPoint::Tip => {
                let range = self.call(index, |source| source.range()).await?;
                self.record_range(index, range);
                match (range, self.task.start) {
                    (Some(range), StartPoint::Oldest) => {
                        let first = range.first;
                        Some(self.call(index, |source| source.first_available(first)).await?)
                    }
                    (range, _) => range.map(|range| range.last.max(range.first)),
                }
            }
        };
        if next.is_none() {
            // The source has no ledgers yet.
            self.members[index].delay_until(Instant::now() + self.timing.poll);
            self.record_success(index);
        }
        self.next = next;
        Ok(Outcome::Answered)
    }

    /// Requests the source's range at intervals, and compares it with the ledger needed. That
    /// ledger may be past the last reported range, because this or another source has yielded
    /// ledgers closed since: the range is then requested again before the source counts as behind.
    async fn survey(&mut self, index: usize, next: LedgerSeq) -> Result<(), Fault> {
        let member = &self.members[index];
        let is_passed = member.range().is_some_and(|range| lags(range, next));
        if is_passed || member.survey_due(&self.timing) <= Instant::now() {
            let range = self.call(index, |source| source.range()).await?;
            self.record_range(index, range);
        }
        let member = &mut self.members[index];
        let Some(range) = member.range() else { return Ok(()) };
        let name = member.source.name();
        if range.first > next && !member.source.may_reach_back() {
            return Err(Fault::of(
                Kind::Lacks,
                format!(
                    "{name} begins at ledger {}, but the next ledger needed is {next}: import \
                     ledgers {next} to {}, or add a source to source.gaps that has them",
                    range.first,
                    range.first.0.saturating_sub(1)
                ),
            ));
        }
        if !lags(range, next) {
            return Ok(());
        }
        self.handle_lagging(index, range, next)
    }

    /// Handles a source that ends far before the stored ledgers: it lags, or its network was reset.
    /// If the store holds the source's last ledger, comparing both copies decides which.
    fn handle_lagging(
        &mut self,
        index: usize,
        range: LedgerRange,
        next: LedgerSeq,
    ) -> Result<(), Fault> {
        let stored = next.0.saturating_sub(1);
        let common = (self.range_of)(range.last).map(|_| range.last);
        let member = &mut self.members[index];
        if member.compare.is_some() {
            return Ok(());
        }
        member.survey = None;
        let name = member.source.name();
        let what =
            format!("{name} ends at ledger {}, but ledger {stored} is stored already", range.last);
        let resets = matches!(self.network.name(), "testnet" | "futurenet");
        let day = range.last.0.saturating_add(LEDGERS_OF_A_DAY) < stored;
        let text = match common {
            Some(_) => {
                let first_time = !matches!(member.kind(), Some(Kind::Behind | Kind::Disputes(_)));
                member.compare = common.filter(|_| first_time);
                format!("{what}: it lags behind")
            }
            None if resets && day => format!(
                "{what}: {} was reset; ingestion has stopped: start again with a new, empty data \
                 directory; this one keeps its ledgers",
                self.network
            ),
            None => format!(
                "{what}: it lags behind, or its network was reset and needs a new, empty data directory"
            ),
        };
        Err(Fault::of(Kind::Behind, text))
    }

    /// Probes a source while another one is in use.
    pub(super) async fn probe(&mut self, index: usize) {
        let (limit, name) = (self.timing.probe, self.members[index].source.name());
        let probing = timeout(limit, async {
            self.check_network(index).await?;
            self.call(index, |source| source.range()).await
        });
        let answer = match probing.await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::TimedOut(no_answer(&name, limit))),
        };
        let answer = match answer {
            Ok(range) => {
                self.record_range(index, range);
                Ok(())
            }
            Err(Fault::Fatal(reason)) => {
                self.members[index].set_fatal(reason);
                return;
            }
            Err(Fault::TimedOut(reason) | Fault::Trouble(Trouble { reason, .. }, _)) => Err(reason),
        };
        let next = self.next.unwrap_or_default();
        self.members[index].record_probe(answer, next, &self.timing);
    }

    /// Records the range that a source reports, and updates the tip and the window alarm from it.
    fn record_range(&mut self, index: usize, range: Option<LedgerRange>) {
        self.members[index].survey = Some(Survey { at: Instant::now(), range });
        if let Some(range) = range {
            self.raise_tip(index, range.last);
            self.watch_window(index, range);
        }
    }

    /// Sends a request to a source; reports to health when there is no answer for long, and fails
    /// at the timeout.
    async fn call<T>(
        &mut self,
        index: usize,
        request: impl for<'s> FnOnce(&'s mut dyn LedgerSource) -> BoxFuture<'s, Result<T, SourceError>>,
    ) -> Result<T, Fault> {
        let (limit, silence) = (self.timing.call, self.timing.silence.min(self.timing.call));
        let name = self.members[index].source.name();
        let mut answer = pin!(request(self.members[index].source.as_mut()));
        if let Ok(answer) = timeout(silence, &mut answer).await {
            return Ok(answer?);
        }
        self.reports.health.down(self.reports.component, no_answer(&name, silence));
        match timeout(limit - silence, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Fault::TimedOut(no_answer(&name, limit))),
        }
    }
}

fn no_answer(name: &str, time: Duration) -> String {
    format!("{name} did not answer within {} s", time.as_secs())
}
