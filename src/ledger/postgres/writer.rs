//! The one task of this replica that writes. While one batch commits, the next one collects.
//! Operations without a waiting caller collect for a few milliseconds more.
//!
//! If a commit fails, its reservations are refused, so no tool runs without its row. Rows of ended
//! calls are kept in the backlog and written first when the database is back. After a commit without
//! an answer, only the next connection shows whether the commit happened; until then, its rows wait
//! in `unanswered`.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::latency::PendingDurations;
use super::super::operation::{self, OnCommit, Reply, Waiting, Write};
use super::super::refusals::Refusals;
use super::super::writer_queue::{COLLECT_TIME, MAX_BATCH, WriterHealth, WriterQueue};
use super::super::{Error, LedgerObserver, State};
use super::batch::{Batch, BlockChanges, End, Postponed};
use super::commit::Decisions;
use super::fault;
use super::lease::HEARTBEAT;
use super::replica::{Attached, Replica};
use super::units::SetAside;
use crate::call::{Charge, InvocationId};

/// A batch ends at about this many bytes of row text.
pub(super) const MAX_BATCH_BYTES: usize = 4 << 20;
/// Pause between attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How often a transaction is repeated after a deadlock.
pub(super) const MAX_REPETITIONS: u32 = 5;

/// Why the end of a call is not in the ledger.
const SETTLED_BY_ANOTHER: &str = "this replica did not reach the database in time, and another one has recorded the call as `unknown`";
/// How soon a call that waits for free units of other replicas asks again, if they do not answer.
const RECALL_RETRY: Duration = Duration::from_millis(100);

pub(super) struct WriterTask {
    pub(super) replica: Replica,
    health: Arc<WriterHealth>,
    pub(super) backlog: Batch,
    /// The batch of a commit without an answer.
    pub(super) unanswered: Option<Batch>,
    /// Calls that were reserved for callers that have gone.
    unwanted: Vec<InvocationId>,
    pub(super) units: SetAside,
    signals: mpsc::Receiver<UnitSignal>,
    /// Starting calls that wait for free units of other replicas.
    postponed: Postponed,
    pub(super) durations: PendingDurations,
    refusals: Refusals,
    /// How long the last commit took.
    commit_time: Duration,
    pub(super) observer: Arc<dyn LedgerObserver>,
}

/// Starts the writer's task.
pub(super) fn spawn_writer(
    replica: Replica,
    units: SetAside,
    signals: mpsc::Receiver<UnitSignal>,
    observer: Arc<dyn LedgerObserver>,
) -> Writer {
    units.restart(replica.boot());
    let health = Arc::<WriterHealth>::default();
    let (writer, operations) = Writer::new(health.clone());
    let task = WriterTask {
        replica,
        health: health.clone(),
        backlog: Batch::default(),
        unanswered: None,
        unwanted: Vec::new(),
        units,
        signals,
        postponed: Postponed::default(),
        durations: PendingDurations::default(),
        refusals: Refusals::default(),
        commit_time: Duration::ZERO,
        observer,
    };
    health.spawn_writer(task.run(operations));
    writer
}

impl WriterTask {
    async fn run(mut self, mut operations: mpsc::Receiver<Operation>) {
        let mut buffer = Vec::with_capacity(MAX_BATCH);
        let mut wake_at = Instant::now() + HEARTBEAT;
        let mut collect_until = Instant::now();
        loop {
            let retry_at = self.postponed.retry_at.unwrap_or(wake_at);
            // `biased` with the time condition: the heartbeat comes however many operations arrive.
            let received = tokio::select! {
                biased;
                received = operations.recv_many(&mut buffer, MAX_BATCH), if Instant::now() < wake_at => received,
                Some(signal) = self.signals.recv(), if Instant::now() < wake_at => {
                    self.follow_signal(signal);
                    self.commit_batch(Batch::default(), Waiting::default()).await;
                    continue;
                }
                () = tokio::time::sleep_until(retry_at), if retry_at < wake_at => {
                    self.commit_batch(Batch::default(), Waiting::default()).await;
                    continue;
                }
                () = tokio::time::sleep_until(wake_at) => {
                    self.beat().await;
                    wake_at = Instant::now() + self.pause();
                    continue;
                }
            };
            if received == 0 {
                break;
            }
            if buffer.len() < MAX_BATCH && !buffer.iter().any(Operation::is_awaited) {
                self.health
                    .collect_until(collect_until, &mut operations, &mut buffer)
                    .await;
            }
            let answered = buffer.iter().filter(|op| op.is_awaited()).count();
            let close = self.process(&mut buffer).await;
            collect_until = Instant::now() + COLLECT_TIME;
            if let Some(reply) = close {
                self.close(operations).await;
                let _ = reply.send(Ok(()));
                break;
            }
            let commit_time = self.commit_time;
            self.health
                .wait_for_callers(answered, commit_time, &operations)
                .await;
        }
    }

    /// How long until the next attempt to connect, or until the next heartbeat. While durations
    /// wait, the heartbeat writes them.
    fn pause(&self) -> Duration {
        if self.is_healthy() {
            HEARTBEAT
        } else {
            RETRY_INTERVAL
        }
    }

    fn is_healthy(&self) -> bool {
        self.replica.is_connected() && self.backlog.is_empty() && self.unanswered.is_none()
    }

    /// Executes operations in order. Returns the reply of the last one.
    async fn process(&mut self, operations: &mut Vec<Operation>) -> Option<Reply<()>> {
        let (mut batch, mut waiting) = (Batch::default(), Waiting::default());
        let mut close = None;
        while let Ok(signal) = self.signals.try_recv() {
            self.follow_signal(signal);
        }
        for op in operations.drain(..) {
            match op {
                Operation::Write(Write::Flush(reply)) => {
                    self.commit_batch(std::mem::take(&mut batch), std::mem::take(&mut waiting))
                        .await;
                    self.units.recall_idle(true);
                    self.beat().await;
                    let _ = reply.send(self.health.check());
                }
                Operation::Write(Write::Close(reply)) => close = Some(reply),
                other => self.collect(other, &mut batch, &mut waiting),
            }
            if waiting.bytes > MAX_BATCH_BYTES {
                self.commit_batch(std::mem::take(&mut batch), std::mem::take(&mut waiting))
                    .await;
            }
        }
        self.commit_batch(batch, waiting).await;
        close
    }

    fn collect(&mut self, op: Operation, batch: &mut Batch, waiting: &mut Waiting) {
        match op {
            Operation::Reserve(call) => {
                waiting.bytes += call.call.row.memory_bytes();
                batch.reservations.push(call);
            }
            Operation::TakeUnits(call) => batch.unit_requests.push(call),
            Operation::Rare(Undo(id)) => batch.voids.push(id),
            Operation::Write(Write::Record { row, on_commit }) => {
                waiting.add(&row, on_commit);
                if row.state == State::Refused {
                    // Its caller may not know that it has units.
                    self.units.cancel(row.id);
                }
                match self.refusals.find_shared_row(&row) {
                    Some(share) => share.add_to(&mut batch.shared_refusals),
                    None => batch.ends.push(End {
                        row,
                        settles: false,
                        refunds: false,
                        held: Vec::new(),
                    }),
                }
            }
            Operation::Settle { end, reply } => {
                waiting.add(&end.row, OnCommit::Reply(reply));
                batch.ends.push(end);
            }
            Operation::Write(Write::Attempt(row)) => batch.attempts.push(row),
            Operation::Write(Write::Store(result)) => {
                waiting.bytes += result.result.len();
                batch.results.push(result);
            }
            Operation::Write(Write::Flush(_) | Write::Close(_)) => {}
        }
    }

    /// Commits a batch, after the backlog, and sends the replies.
    async fn commit_batch(&mut self, mut batch: Batch, waiting: Waiting) {
        // Without a connection, the callers do not wait for one.
        let is_sent = self.is_healthy();
        if !is_sent
            || self
                .postponed
                .retry_at
                .is_some_and(|at| at <= Instant::now())
        {
            self.postponed.resume(&mut batch);
        }
        batch.remove_abandoned();
        if is_sent && self.replica.has_lease() {
            self.units.serve(&mut batch.unit_requests);
        }
        if batch.is_empty() && !(is_sent && self.units.has_changes()) {
            return;
        }
        batch.remove_duplicates();
        let committed = if is_sent {
            batch.voids.append(&mut self.unwanted);
            self.commit(&mut batch).await
        } else {
            Err(self.last_failure())
        };
        match committed {
            Ok(decisions) => {
                self.durations.add(batch.ended_rows());
                self.answer(batch, waiting, decisions);
            }
            Err(error) => {
                waiting.answer(|_| Err(error.clone()));
                batch.fail_starting(&error);
                self.keep(batch, is_sent);
            }
        }
    }

    /// Sends what the commit decided. Calls that wait for free units stay.
    fn answer(&mut self, mut batch: Batch, waiting: Waiting, decisions: Decisions) {
        let mut has_own_units = false;
        let decided = batch.reservations.drain(..).zip(decisions.reservations);
        for (mut one, decision) in decided {
            let Some(mut decision) = decision else {
                has_own_units |= self.postpone(&mut one.waits_since, &one.call.charges);
                self.postponed.batch.reservations.push(one);
                continue;
            };
            if let Ok(reservation) = &mut decision {
                self.units.hide_free(&mut reservation.charged);
            }
            if let Err(Ok(_)) = one.reply.send(decision) {
                self.unwanted.push(one.call.row.id);
            }
        }
        let decided = batch.unit_requests.drain(..).zip(decisions.unit_requests);
        for (mut one, decision) in decided {
            let Some(mut decision) = decision else {
                has_own_units |= self.postpone(&mut one.waits_since, &one.call.charges);
                self.postponed.batch.unit_requests.push(one);
                continue;
            };
            if let Ok(reservation) = &mut decision {
                self.units.hold(one.call.invocation, &reservation.charged);
                self.units.hide_free(&mut reservation.charged);
            }
            if let Err(Ok(_)) = one.reply.send(decision) {
                self.units.cancel(one.call.invocation);
            }
        }
        // After the new calls have their units: a block without units in use is dropped.
        self.units.end(&batch);
        waiting.answer(|call| match decisions.lost.contains(&call) {
            true => Err(Error::Failed(SETTLED_BY_ANOTHER.into())),
            false => Ok(()),
        });
        if !self.postponed.batch.is_empty() {
            let pause = if has_own_units {
                Duration::ZERO
            } else {
                RECALL_RETRY
            };
            self.postponed.retry_at = Some(Instant::now() + pause);
        }
    }

    /// Lets a call wait for free units. Returns whether this replica has some.
    fn postpone(&self, waits_since: &mut Option<StdInstant>, charges: &[Charge]) -> bool {
        waits_since.get_or_insert_with(StdInstant::now);
        self.units.recall_charged(charges)
    }

    fn follow_signal(&mut self, signal: UnitSignal) {
        match signal {
            UnitSignal::Recall(counter) => self.units.recall(counter),
            UnitSignal::Freed if self.postponed.batch.is_empty() => {}
            UnitSignal::Freed => self.postponed.retry_at = Some(Instant::now()),
        }
    }

    /// Takes over what a commit has done with units.
    pub(super) fn take_over_units(&self, decisions: &mut Decisions) {
        let counters = std::mem::take(&mut decisions.counters);
        self.units.update(counters, &decisions.gone);
        for counter in &decisions.recalled {
            self.units.recall(*counter);
        }
    }

    /// Notes under which id this replica goes on.
    fn follow_boot(&self, attached: &Attached) {
        if attached.was_settled {
            self.units.restart(self.replica.boot());
            warn_settled(&self.replica);
        }
    }

    /// Commits a batch. A failed batch is still with the caller, unless its outcome is open.
    async fn commit(&mut self, batch: &mut Batch) -> Result<Decisions, Error> {
        let mut repetitions = 0;
        let began = Instant::now();
        if !self.replica.has_lease() {
            // A counter may have been reset meanwhile, without the units of this replica.
            self.units.mark_uncertain();
        }
        let mut blocks = self.units.plan(batch);
        loop {
            // A heartbeat writes all that wait.
            let has_durations =
                self.durations.is_due() || batch.is_empty() && !self.durations.is_empty();
            let durations = has_durations.then_some(&self.durations);
            let running = self.observer.running_calls();
            match self
                .replica
                .commit(running, batch, &blocks, durations)
                .await
            {
                Ok(mut decisions) => {
                    self.take_over_units(&mut decisions);
                    if has_durations {
                        self.durations.clear();
                    }
                    if !batch.is_empty() {
                        self.commit_time = began.elapsed();
                        self.observer.on_commit(batch.len(), self.commit_time);
                    }
                    self.mark_recovered();
                    return Ok(decisions);
                }
                Err(error) if fault::is_repeatable(&error) && repetitions < MAX_REPETITIONS => {
                    repetitions += 1;
                }
                Err(error)
                    if fault::is_row_error(&error) && self.refuse_known_calls(batch).await =>
                {
                    blocks = self.units.plan(batch);
                }
                Err(error) if fault::is_replica_ended(&error) => {
                    // Nothing of this batch is committed, so it can be repeated under a new id.
                    self.replica.disconnect();
                    match self.replica.reattach().await {
                        Ok(attached) => self.follow_boot(&attached),
                        Err(error) => return Err(self.fail(&error)),
                    }
                    blocks = self.units.plan(batch);
                }
                Err(error) => return Err(self.fail(&error)),
            }
        }
    }

    /// Notes a failure.
    pub(super) fn fail(&self, error: &sqlx::Error) -> Error {
        let reason = fault::reason(error);
        self.units.mark_uncertain();
        self.observer.on_commit_failure();
        if self.health.fail(reason.clone()) {
            tracing::error!(%reason, "the ledger cannot write; calls are refused until it can");
        }
        Error::Failed(reason)
    }

    fn last_failure(&self) -> Error {
        let check = self.health.check().err();
        check.unwrap_or_else(|| Error::Failed("the database is not connected".into()))
    }

    fn mark_recovered(&self) {
        if self.health.recover() {
            tracing::warn!("the ledger can write again");
        }
    }

    /// Reconnects if needed, writes the backlog, or shows the other replicas that this one lives.
    async fn beat(&mut self) {
        if !self.replica.is_connected() {
            match self.replica.reattach().await {
                Ok(attached) => {
                    self.follow_boot(&attached);
                    self.resolve_unanswered(attached.open_commit_succeeded);
                }
                Err(error) => {
                    self.fail(&error);
                    return;
                }
            }
        }
        // Reservations are undone before the ends of the same calls are written.
        let ends = std::mem::take(&mut self.backlog);
        self.backlog.voids.append(&mut self.unwanted);
        self.backlog.take_over(ends);
        while !self.backlog.is_empty() {
            if !self.write_backlog().await {
                break;
            }
        }
        self.report_backlog();
        self.units.recall_idle(false);
        if self.backlog.is_empty() && self.replica.take_lock().await.is_ok() {
            let _ = self.commit(&mut Batch::default()).await;
            // The answer may ask for free units.
            self.commit_batch(Batch::default(), Waiting::default())
                .await;
        }
    }

    async fn close(mut self, mut operations: mpsc::Receiver<Operation>) {
        operations.close();
        self.units.recall_idle(true);
        self.beat().await;
        if !self.durations.is_empty() {
            let running = self.observer.running_calls();
            let _ = self
                .replica
                .commit(
                    running,
                    &Batch::default(),
                    &BlockChanges::default(),
                    Some(&self.durations),
                )
                .await;
        }
        while let Ok(op) = operations.try_recv() {
            op.log_lost_row();
        }
        let unanswered = self.unanswered.iter().flat_map(Batch::ended_rows);
        for row in self.backlog.ended_rows().chain(unanswered) {
            tracing::error!(id = %row.id, tool = %row.tool, "the end of a call is not recorded");
        }
        self.replica.close().await;
    }
}

fn warn_settled(replica: &Replica) {
    tracing::warn!(
        replica = %replica.boot(),
        "another replica has settled this one, which did not reach the database in time; it goes on under a new id"
    );
}

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<End, Undo>;

/// An operation of the writer.
pub(super) type Operation = operation::Operation<End, Undo>;

/// Undoes a reservation.
pub(super) struct Undo(pub(super) InvocationId);

/// What other replicas tell the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitSignal {
    /// Calls need the free units of this counter.
    Recall(i64),
    /// Free units were given back.
    Freed,
}

impl UnitSignal {
    /// Reads the text of a notification.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("recall", counter) => counter.parse().ok().map(Self::Recall),
            ("freed", _) => Some(Self::Freed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_other_replicas_are_read() {
        for (text, signal) in [
            ("recall 7", Some(UnitSignal::Recall(7))),
            ("freed 7", Some(UnitSignal::Freed)),
            ("recall x", None),
            ("recall", None),
            ("of a newer version", None),
        ] {
            assert_eq!(UnitSignal::parse(text), signal, "{text}");
        }
    }
}
