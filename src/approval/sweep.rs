//! Expires calls without a decision, and acts on decisions whose process has ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use super::deciding::{SERVICE, denied, expired};
use super::table::{ActiveGuard, Decided};
use crate::call::{ApprovalStage, CallError};
use crate::catalog::registry::Registry;
use crate::ledger::{
    self, ApprovalChange, ApprovalDecision, ApprovalQuery, ApprovalRow, ApprovalState, State,
};

/// How often the sweep looks.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// After this many looks, the sweep looks for calls whose process has ended.
const LOST_CALLS_TICKS: u64 = 30;
/// Maximum number of approvals that one sweep reads at once, and on which it acts.
const SWEEP_SIZE: u32 = 200;
/// Maximum number of such pages that one sweep reads: more calls never wait.
const SWEEP_PAGES: u32 = 60;
/// The approvals that a sweep looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Expired calls, and decisions on which no process acts.
    Due,
    /// Waiting calls that only the memory of an ended process had.
    Lost,
}

impl Registry {
    /// Expires calls, and acts on decisions of processes that have ended, as long as the service
    /// runs.
    pub(crate) async fn sweep_approvals(self: Arc<Self>) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            if self.shared().in_flight_calls.is_closed() {
                return;
            }
            if tick % LOST_CALLS_TICKS == 0
                && let Err(error) = self.sweep(Sweep::Lost).await
            {
                tracing::debug!(%error, "waiting calls cannot be read");
            }
            if let Err(error) = self.sweep(Sweep::Due).await {
                tracing::debug!(%error, "waiting calls cannot be read");
            }
        }
    }

    /// Acts on approvals page by page: a page full of calls that others run must not hide the calls
    /// behind it.
    async fn sweep(self: &Arc<Self>, sweep: Sweep) -> Result<(), ledger::Error> {
        let shared = self.shared();
        let now = shared.clock.now();
        let mut query = ApprovalQuery {
            due_at: (sweep == Sweep::Due).then_some(now),
            state: (sweep == Sweep::Lost).then_some(ApprovalState::Waiting),
            limit: SWEEP_SIZE,
            ..ApprovalQuery::default()
        };
        let mut living = None;
        let mut acted = 0;
        for _ in 0..SWEEP_PAGES {
            let page = shared.ledger.list_approvals(&query).await?;
            query.before = page.last().map(|last| last.invocation);
            let is_last = page.len() < SWEEP_SIZE as usize;
            if living.is_none() && !page.is_empty() {
                let names = shared.ledger.living_processes().await?;
                living = Some(names.into_iter().collect::<HashSet<_>>());
            }
            for row in page {
                let is_living = living
                    .as_ref()
                    .is_some_and(|living| living.contains(&row.runner));
                acted += u32::from(self.act_on(sweep, row, is_living, now).await?);
            }
            if is_last || acted >= SWEEP_SIZE {
                break;
            }
        }
        Ok(())
    }

    /// Acts on one approval. Returns whether there was something to do.
    async fn act_on(
        self: &Arc<Self>,
        sweep: Sweep,
        row: ApprovalRow,
        is_living: bool,
        now: Timestamp,
    ) -> Result<bool, ledger::Error> {
        let is_own = row.runner == self.process();
        let is_wanted = match (sweep, row.state) {
            (Sweep::Due, ApprovalState::Waiting) => true,
            (Sweep::Due, _) => is_own || !is_living,
            (Sweep::Lost, _) => row.call.is_none() && !is_own && !is_living,
        };
        if !is_wanted {
            return Ok(false);
        }
        let Some(active) = self.shared().waiting_calls.activate(row.invocation) else {
            return Ok(false);
        };
        if row.state == ApprovalState::Waiting {
            self.expire(row, active, now).await?;
        } else {
            self.take_over(row, active).await?;
        }
        Ok(true)
    }

    async fn expire(
        self: &Arc<Self>,
        row: ApprovalRow,
        active: ActiveGuard,
        now: Timestamp,
    ) -> Result<(), ledger::Error> {
        let change = ApprovalChange {
            decision: Some(ApprovalDecision {
                at: now,
                by: SERVICE.into(),
                note: None,
                changed_arguments: None,
            }),
            ..ApprovalChange::new(
                row.invocation,
                ApprovalState::Waiting,
                ApprovalState::Expired,
                self.process(),
            )
        };
        if self.shared().ledger.change_approval(change).await? {
            self.publish(row.invocation).await;
            let stage = ApprovalStage::Refused(expired(&row));
            self.act(row, Decided { stage, active });
        }
        Ok(())
    }

    /// Acts on a decision on which no process acts.
    async fn take_over(
        self: &Arc<Self>,
        row: ApprovalRow,
        active: ActiveGuard,
    ) -> Result<(), ledger::Error> {
        let ledger = &self.shared().ledger;
        let id = row.invocation;
        if ledger.check_health().is_err() {
            return Ok(());
        }
        let found = ledger.get(id).await?;
        if found
            .as_ref()
            .is_some_and(|call| call.row.state == State::Reserved)
        {
            // The call runs, or its reservation is undone or settled soon.
            return Ok(());
        }
        let has_row = found.is_some();
        // An approval that was used without a row did not start the tool, because the row precedes
        // the tool. So it can be used again.
        let to = match row.state {
            ApprovalState::Started if !has_row => ApprovalState::Approved,
            state => state,
        };
        // The process that has the row answers requests that wait for the call.
        let runner = match has_row {
            true => row.runner.clone(),
            false => self.process(),
        };
        let take = ApprovalChange {
            from_runner: Some(row.runner.clone()),
            done: has_row,
            ..ApprovalChange::new(id, row.state, to, runner)
        };
        if has_row {
            self.shared().waiting_calls.forget(id);
        }
        if !ledger.change_approval(take).await? || has_row {
            return Ok(());
        }
        let stage = match to {
            ApprovalState::Denied => {
                let by = row.decided_by.as_deref().unwrap_or(SERVICE);
                ApprovalStage::Refused(denied(&row, by, row.note.as_deref()))
            }
            ApprovalState::Withdrawn => {
                ApprovalStage::Refused(CallError::Cancelled { started: false })
            }
            ApprovalState::Approved => self.stored_approval(&row),
            _ => ApprovalStage::Refused(expired(&row)),
        };
        self.act(row, Decided { stage, active });
        Ok(())
    }
}
