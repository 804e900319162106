//! Applies operations to a ledger and to its model, and compares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

use super::super::contract::{now, row};
use super::super::{Ledger, Query, ReserveError, Row, State};
use super::harness::Harness;
use super::model::Model;
use super::operation::{CALLERS, Operation, PERS, StartedCall, Step, TOOLS};
use crate::call::{Charge, Effect, InvocationId, LimitScope, Per};

/// Runs a case.
pub(super) async fn compare_steps<H: Harness>(mut harness: H, steps: Vec<Step>) {
    let mut ledgers = Vec::new();
    for _ in 0..H::RULES.replicas {
        ledgers.push(harness.open(now()).await);
    }
    let mut pair = LedgerAndModel {
        harness,
        ledgers,
        is_disconnected: vec![false; H::RULES.replicas],
        model: Model::new(H::RULES),
        at: now(),
    };
    for step in steps {
        pair.apply(step).await;
    }
    pair.compare().await;
}

/// A limit of the tool. Limits per day are the caller's own limits over all tools.
fn charge(tool: &str, caller: &str, per: Per, limit: u64) -> Charge {
    let (tool, caller) = match per {
        Per::Day => (String::new(), caller.to_owned()),
        Per::Run => (tool.to_owned(), caller.to_owned()),
        _ => (tool.to_owned(), String::new()),
    };
    let run = if per == Per::Run {
        "r1".to_owned()
    } else {
        String::new()
    };
    Charge {
        tool,
        caller,
        run,
        per,
        limit,
        scope: LimitScope::Tool,
    }
}

/// A charge for each counter that can exist.
fn all_charges() -> Vec<Charge> {
    let pairs = TOOLS
        .iter()
        .flat_map(|tool| CALLERS.iter().map(move |caller| (tool, caller)));
    pairs
        .flat_map(|(tool, caller)| PERS.map(|per| charge(tool, caller, per, 9)))
        .collect()
}

/// A call that starts at `at`; its id has the same time.
fn started_row(tool: usize, caller: usize, at: Timestamp, key: Option<u8>) -> Row {
    let row = row(TOOLS[tool], CALLERS[caller], at);
    let mut id = *InvocationId::lower_bound(at).as_bytes();
    id[8..].copy_from_slice(&row.id.as_bytes()[8..]);
    let idempotency_key = key.map(|key| format!("k{key}").into());
    Row {
        id: InvocationId::from_bytes(id),
        idempotency_key,
        ..row
    }
}

fn refused_row(row: Row) -> Row {
    Row {
        state: State::Refused,
        duration_us: Some(7),
        ..row
    }
}

struct LedgerAndModel<H> {
    harness: H,
    /// The ledger of each process.
    ledgers: Vec<Arc<dyn Ledger>>,
    /// Whether the process has lost its connection, so that its next end may fail.
    is_disconnected: Vec<bool>,
    model: Model,
    at: Timestamp,
}

impl<H: Harness> LedgerAndModel<H> {
    fn build_reservation(
        &mut self,
        StartedCall {
            caller,
            tool,
            write,
            key,
            limits,
            seconds_later,
        }: StartedCall,
    ) -> (Row, Vec<Charge>) {
        self.at += seconds_later.seconds();
        let mut row = started_row(tool, caller, self.at, key);
        row.effect = if write {
            Effect::Write
        } else {
            Effect::Idempotent
        };
        row.fingerprint = key.map(|_| "f".into());
        row.key_until = key.map(|_| Row::FOREVER);
        let mut charges: Vec<Charge> = Vec::new();
        for (per, limit) in limits {
            let charge = charge(TOOLS[tool], CALLERS[caller], PERS[per], limit);
            if !charges.iter().any(|other| other.shares_counter(&charge)) {
                charges.push(charge);
            }
        }
        (row, charges)
    }

    async fn apply(&mut self, Step { replica, operation }: Step) {
        let replica = replica % self.ledgers.len();
        let ledger = self.ledgers[replica].clone();
        match operation {
            Operation::Reserve(calls) => self.reserve(replica, calls).await,
            Operation::Read(call) => self.read(replica, call).await,
            Operation::Settle {
                which,
                state,
                refunds,
            } => self.settle(which, state, refunds).await,
            Operation::Refuse { caller, tool, key } => {
                let row = refused_row(started_row(tool, caller, self.at, key));
                self.refuse(replica, vec![row]).await;
            }
            Operation::Flood {
                caller,
                tool,
                calls,
            } => {
                let row = || refused_row(started_row(tool, caller, self.at, None));
                self.refuse(replica, (0..calls).map(|_| row()).collect())
                    .await;
            }
            Operation::Trim { at_most } => {
                self.model.trim(at_most.into());
                ledger.trim(self.at, at_most.into()).await.unwrap();
            }
            Operation::Clock(seconds) => self.at += seconds.seconds(),
            Operation::Reset { tool, caller } => {
                let caller = caller.map(|caller| CALLERS[caller]);
                self.model.reset_counters(TOOLS[tool], caller);
                ledger
                    .reset_counters(TOOLS[tool], caller, None)
                    .await
                    .unwrap();
            }
            Operation::Prune { age_seconds } => {
                let before = self.at - i64::from(age_seconds).seconds();
                self.reconnect(replica).await;
                self.model.prune(before, self.at);
                ledger.prune(before, self.at, 1000).await.unwrap();
            }
            Operation::Abandon { call, refused } => self.abandon(replica, call, refused).await,
            Operation::Crash => {
                drop(ledger);
                let crashed = self.ledgers.remove(replica);
                self.harness.crash(crashed, self.at).await;
                let opened = self.harness.open(self.at).await;
                self.ledgers.insert(replica, opened);
                self.model.crash(replica, self.at);
                self.lose_units().await;
            }
            Operation::Disconnect => {
                self.harness.disconnect(&*ledger).await;
                self.is_disconnected[replica] = true;
            }
        }
    }

    /// Waits until a process has its ledger back. What it has written without one is committed then.
    async fn reconnect(&mut self, replica: usize) {
        if std::mem::take(&mut self.is_disconnected[replica]) {
            while self.ledgers[replica].flush().await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn reserve(&mut self, replica: usize, calls: Vec<StartedCall>) {
        self.reconnect(replica).await;
        let reservations: Vec<_> = calls
            .into_iter()
            .map(|call| self.build_reservation(call))
            .collect();
        let expected: Vec<_> = reservations
            .iter()
            .map(|(row, charges)| self.model.reserve(replica, row, charges))
            .collect();
        let ids: Vec<InvocationId> = reservations.iter().map(|(row, _)| row.id).collect();
        let requests = reservations
            .into_iter()
            .map(|(row, charges)| self.ledgers[replica].reserve(row, charges));
        let result = futures_util::future::join_all(requests).await;
        for ((id, result), expected) in ids.iter().zip(result).zip(expected) {
            match (result, expected) {
                (Ok(reservation), Ok(())) => {
                    self.model.calls.get_mut(id).unwrap().charged = reservation.charged;
                }
                (Err(ReserveError::KeyClaimed(holder)), Err(Some(expected))) => {
                    assert_eq!(holder, expected);
                }
                (Err(ReserveError::LimitReached(_)), Err(None)) => {}
                (result, expected) => panic!("{result:?} instead of {expected:?}"),
            }
        }
    }

    async fn read(&mut self, replica: usize, call: StartedCall) {
        let call = StartedCall { key: None, ..call };
        let (mut row, charges) = self.build_reservation(call);
        row.effect = Effect::Read;
        if charges.is_empty() {
            return;
        }
        self.reconnect(replica).await;
        let expected = self.model.reserve(replica, &row, &charges);
        let taken = self.ledgers[replica].take_units(row.id, row.started_at, charges);
        match (taken.await, expected) {
            (Ok(reservation), Ok(())) => {
                self.model.calls.get_mut(&row.id).unwrap().charged = reservation.charged;
            }
            (Err(ReserveError::LimitReached(_)), Err(None)) => {}
            (taken, expected) => panic!("{taken:?} instead of {expected:?}"),
        }
    }

    async fn settle(&mut self, which: prop::sample::Index, state: State, refunds: bool) {
        if self.model.ids.is_empty() {
            return;
        }
        let id = *which.get(&self.model.ids);
        let Some(call) = self.model.calls.get(&id).cloned() else {
            return;
        };
        if call.charged.is_empty() && call.row.state != State::Reserved {
            return;
        }
        let keeps = call.row.idempotency_key.is_some() && state != State::Refused && !refunds;
        let fingerprint = call.row.idempotency_key.as_ref().map(|_| "f".into());
        let row = Row {
            state,
            duration_us: Some(7),
            fingerprint,
            key_until: keeps.then(|| self.at + 24.hours()),
            ..call.row
        };
        self.model.settle(&row, refunds);
        let refunds = if refunds { call.charged } else { Vec::new() };
        let ledger = &self.ledgers[call.replica];
        let settled = ledger.settle(Arc::new(row), refunds).await;
        let is_refused = H::RULES.refuses_interrupted && call.is_interrupted;
        if !self.is_disconnected[call.replica] {
            assert_eq!(settled.is_err(), is_refused, "{settled:?}");
        }
        self.reconnect(call.replica).await;
    }

    async fn refuse(&mut self, replica: usize, rows: Vec<Row>) {
        rows.iter().for_each(|row| self.model.refuse(replica, row));
        let ledger = &self.ledgers[replica];
        let recorded = rows.into_iter().map(|row| ledger.record(Arc::new(row)));
        let recorded = futures_util::future::join_all(recorded).await;
        if !self.is_disconnected[replica] {
            assert!(recorded.iter().all(Result::is_ok));
        }
        self.reconnect(replica).await;
    }

    /// A call whose caller goes away while it asks for units, so that nothing of it may stay.
    async fn abandon(&mut self, replica: usize, call: StartedCall, refused: bool) {
        if !H::RULES.undoes_unknown {
            return;
        }
        let is_write = call.write;
        let (row, mut charges) = self.build_reservation(StartedCall { key: None, ..call });
        // Other counters would show that a new window has begun.
        charges.retain(|charge| charge.per == Per::Lifetime);
        self.reconnect(replica).await;
        let ledger = self.ledgers[replica].clone();
        // The first poll hands the operation over.
        let answer = if is_write {
            ledger.reserve(row.clone(), charges).now_or_never()
        } else {
            ledger
                .take_units(row.id, row.started_at, charges)
                .now_or_never()
        };
        // Units from memory are there at once. Their caller records the end in any case.
        if refused || answer.is_some() {
            self.refuse(replica, vec![refused_row(row)]).await;
        } else {
            self.model.ids.push(row.id);
        }
        ledger.flush().await.unwrap();
    }

    /// Units of calls without a row stay used after a crash, and maybe some more.
    async fn lose_units(&mut self) {
        self.give_back_units().await;
        for charge in all_charges() {
            let charge = std::slice::from_ref(&charge);
            // Windows never go back, so this is the newest one.
            let earliest = Timestamp::UNIX_EPOCH;
            let found = self.ledgers[0].units_used(charge, earliest).await.unwrap();
            // A call that ends after a reset may have set units of the new counter aside.
            let counter = self.model.new_or_existing_counter(&charge[0], &found[0]);
            if counter.window_start == found[0].window_start {
                assert!(counter.used <= found[0].used, "a unit came back");
                let lost = found[0].used - counter.used;
                assert!(lost <= H::RULES.max_lost_units, "too many units lost");
                counter.used = found[0].used;
            }
        }
    }

    async fn compare(&mut self) {
        self.give_back_units().await;
        for replica in 0..self.ledgers.len() {
            self.compare_with(replica).await;
        }
    }

    /// Lets every process give back the units that no call uses, so that the ledger counts only
    /// those of calls.
    async fn give_back_units(&mut self) {
        for replica in 0..self.ledgers.len() {
            self.reconnect(replica).await;
            self.ledgers[replica].flush().await.unwrap();
        }
    }

    async fn compare_with(&self, replica: usize) {
        let ledger = &self.ledgers[replica];
        self.compare_rows(&**ledger).await;
        for charge in all_charges() {
            let used = ledger
                .units_used(std::slice::from_ref(&charge), self.at)
                .await
                .unwrap();
            assert_eq!(
                (used[0].window_start, used[0].used),
                self.model.counter_value(&charge, self.at),
                "{charge:?}"
            );
        }
        for (caller, tool, key) in CALLERS.iter().flat_map(|c| {
            TOOLS
                .iter()
                .flat_map(move |t| (0..3u8).map(move |k| (c, t, k)))
        }) {
            let key = format!("k{key}");
            let claim = Row {
                idempotency_key: Some(key.as_str().into()),
                ..row(tool, caller, self.at)
            };
            let found = ledger
                .find_key_holder(caller, tool, &key, self.at)
                .await
                .unwrap();
            assert_eq!(
                found.map(|row| row.id),
                self.model.key_holder(&claim, self.at)
            );
        }
        assert_eq!(
            ledger.counter_drift().await.unwrap(),
            0,
            "counters are what the rows say"
        );
        let mut totals = self.model.totals.clone();
        for usage in ledger.usage_totals(None).await.unwrap() {
            let found = [usage.calls, usage.succeeded, usage.failed, usage.refused];
            let expected = totals.remove(&(usage.tool.clone(), usage.caller.clone()));
            // A call that was undone may leave zeros.
            assert_eq!(expected.unwrap_or_default(), found, "{usage:?}");
        }
        assert!(totals.is_empty(), "missing totals: {totals:?}");
    }

    async fn compare_rows(&self, ledger: &dyn Ledger) {
        let state = |row: &Row| (row.state, row.key_until, row.count);
        let rows = self.model.calls.iter().filter(|(_, call)| call.has_row);
        let expected: BTreeMap<_, _> = rows.map(|(id, call)| (*id, state(&call.row))).collect();
        for id in &self.model.ids {
            let found = ledger.get(*id).await.unwrap();
            let found = found.map(|found| state(&found.row));
            assert_eq!(found.as_ref(), expected.get(id), "{id}");
        }
        let all = Query {
            limit: 100_000,
            ..Query::default()
        };
        let listed = ledger.list_calls(&all).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|row| (row.id, row.count)).collect();
        let expected = expected.into_iter().rev();
        let expected: Vec<_> = expected.map(|(id, (_, _, count))| (id, count)).collect();
        assert_eq!(listed, expected);
    }
}
