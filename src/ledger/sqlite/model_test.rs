//! Compares the ledger with a simple model over random operations, crashes and clock jumps. Both
//! must agree, and no unit, no key and no end may count twice.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

use super::super::contract::{now, row};
use super::super::refusals::{RefusalRow, Refusals};
use super::super::*;
use crate::call::{Charge, Charged, Effect, InvocationId, LimitScope, Per};

const CALLERS: [&str; 2] = ["a", "b"];
const TOOLS: [&str; 2] = ["t", "u"];
const PERS: [Per; 4] = [Per::Minute, Per::Day, Per::Run, Per::Lifetime];
const ENDS: [State; 6] = [
    State::Succeeded,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Refused,
    State::Unknown,
];

/// A call that starts: caller, tool, effect, key, the limits that it is charged to, and the seconds
/// since the call before.
#[derive(Debug, Clone)]
struct StartedCall {
    caller: usize,
    tool: usize,
    write: bool,
    key: Option<u8>,
    limits: Vec<(usize, u64)>,
    seconds_later: i32,
}

/// A random operation.
#[derive(Debug, Clone)]
enum Operation {
    /// Calls start so close together that one commit reserves all of them.
    Reserve(Vec<StartedCall>),
    /// A limited read takes its units, and gets its row when it ends.
    Read(StartedCall),
    /// One of the existing calls ends, or ends a second time, with or without a refund of its
    /// units.
    Settle {
        which: prop::sample::Index,
        state: State,
        refunds: bool,
    },
    /// A refused call is recorded.
    Refuse {
        caller: usize,
        tool: usize,
        key: Option<u8>,
    },
    /// Many calls are refused within a moment.
    Flood {
        caller: usize,
        tool: usize,
        calls: u16,
    },
    /// Rows that no guarantee covers are deleted, as if the file were full.
    Trim { at_most: u8 },
    /// The wall clock moves forward or back by this number of seconds.
    Clock(i32),
    /// An admin resets counters.
    Reset { tool: usize, caller: Option<usize> },
    /// Calls that started this number of seconds ago or earlier are deleted.
    Prune { age_seconds: u16 },
    /// The process ends without closing the file, and another one opens it.
    Crash,
}

fn operation_strategy() -> impl Strategy<Value = Operation> {
    let (caller, tool, key) = (
        0..CALLERS.len(),
        0..TOOLS.len(),
        proptest::option::of(0..3u8),
    );
    let limit = prop_oneof![1..5u64, 9..60u64];
    let limits = proptest::collection::vec((0..PERS.len(), limit), 0..3);
    let started_call = (
        caller.clone(),
        tool.clone(),
        any::<bool>(),
        key.clone(),
        limits,
        -40..40i32,
    )
        .prop_map(
            |(caller, tool, write, key, limits, seconds_later)| StartedCall {
                caller,
                tool,
                write,
                key,
                limits,
                seconds_later,
            },
        );
    prop_oneof![
        6 => proptest::collection::vec(started_call.clone(), 1..4).prop_map(Operation::Reserve),
        8 => started_call.prop_map(Operation::Read),
        8 => (any::<prop::sample::Index>(), proptest::sample::select(ENDS.to_vec()), any::<bool>())
            .prop_map(|(which, state, refunds)| Operation::Settle { which, state, refunds }),
        2 => (caller.clone(), tool.clone(), key).prop_map(|(caller, tool, key)| Operation::Refuse { caller, tool, key }),
        1 => (caller.clone(), tool.clone(), 0..150u16).prop_map(|(caller, tool, calls)| Operation::Flood { caller, tool, calls }),
        1 => (1..9u8).prop_map(|at_most| Operation::Trim { at_most }),
        3 => prop_oneof![-90..90i32, -90_000..90_000i32].prop_map(Operation::Clock),
        2 => (tool, proptest::option::of(caller)).prop_map(|(tool, caller)| Operation::Reset { tool, caller }),
        1 => (0..200_000u32).prop_map(|quarters| Operation::Prune { age_seconds: u16::try_from(quarters / 4).unwrap_or(0) }),
        2 => Just(Operation::Crash),
    ]
}

type CounterKey = (String, String, String, Per);

/// The value of a counter. After a reset it has another `instance`, which does not count earlier
/// units.
#[derive(Clone, Copy)]
struct CounterValue {
    window_start: i64,
    used: u64,
    counted_at: i64,
    instance: u64,
}

#[derive(Clone)]
struct ModelCall {
    row: Row,
    charged: Vec<Charged>,
    /// The counters that count this call, each with its instance.
    counters: Vec<(CounterKey, u64)>,
    /// Whether the call was committed before its tool ran.
    committed_before_run: bool,
    /// Whether the row is in the ledger.
    has_row: bool,
}

/// The ledger's guarantees, implemented in a few lines.
#[derive(Default)]
struct Model {
    calls: HashMap<InvocationId, ModelCall>,
    /// Ids of the calls in the order of their rows.
    ids: Vec<InvocationId>,
    counters: HashMap<CounterKey, CounterValue>,
    instances: u64,
    refusals: Refusals<()>,
    /// Number of calls by tool and caller: all, succeeded, failed, refused.
    totals: HashMap<(String, String), [u64; 4]>,
}

impl Model {
    fn totals_mut(&mut self, row: &Row) -> &mut [u64; 4] {
        self.totals
            .entry((row.tool.to_string(), row.caller.to_string()))
            .or_default()
    }

    fn count_end(&mut self, row: &Row) {
        let column = match row.state {
            State::Succeeded => 1,
            State::Refused => 3,
            _ => 2,
        };
        self.totals_mut(row)[column] += 1;
    }

    fn refuse(&mut self, row: &Row) {
        self.totals_mut(row)[0] += 1;
        self.count_end(row);
        self.ids.push(row.id);
        match self.refusals.assign_row(row, |_| ()) {
            RefusalRow::Shared { row: shared, .. } => {
                // The shared row may have been deleted meanwhile.
                self.calls
                    .entry(shared)
                    .and_modify(|call| call.row.count += 1);
            }
            RefusalRow::Own => {
                let (charged, counted) = (Vec::new(), Vec::new());
                self.calls.insert(
                    row.id,
                    ModelCall {
                        row: row.clone(),
                        charged,
                        counters: counted,
                        committed_before_run: false,
                        has_row: true,
                    },
                );
            }
        }
    }

    fn trim(&mut self, at_most: usize) {
        let newest = self
            .ids
            .iter()
            .rev()
            .find(|id| self.calls.get(id).is_some_and(|call| call.has_row))
            .copied();
        let is_deletable = |id: &&InvocationId| {
            self.calls.get(id).is_some_and(|call| match call.row.state {
                State::Reserved | State::Unknown => false,
                // A row with units that were not refunded must stay, because its counter still
                // counts it.
                State::Refused => call.counters.iter().all(|(key, _)| key.3 == Per::Run),
                _ if call.committed_before_run => false,
                _ => call.counters.iter().all(|(key, _)| key.3 == Per::Run),
            })
        };
        let deletable = self
            .ids
            .iter()
            .filter(is_deletable)
            .filter(|id| Some(**id) != newest)
            .take(at_most);
        for id in deletable.copied().collect::<Vec<_>>() {
            self.calls.remove(&id);
        }
    }

    fn key_holder(&self, row: &Row, at: Timestamp) -> Option<InvocationId> {
        let has_same_key = |call: &&ModelCall| {
            (&call.row.caller, &call.row.tool, &call.row.idempotency_key)
                == (&row.caller, &row.tool, &row.idempotency_key)
        };
        let holds_key = |call: &&ModelCall| call.row.key_until.is_some_and(|until| until > at);
        self.calls
            .values()
            .filter(holds_key)
            .find(has_same_key)
            .map(|call| call.row.id)
    }

    fn counter_value(&self, charge: &Charge, at: Timestamp) -> (i64, u64) {
        let current = charge.per.window_start(at);
        match self.counters.get(&counter_key(charge)) {
            Some(count) if count.window_start >= current => (count.window_start, count.used),
            _ => (current, 0),
        }
    }

    /// Whether the reservation succeeds. The error is the call that holds the key, or `None` for a
    /// full limit.
    fn reserve(&mut self, row: &Row, charges: &[Charge]) -> Result<(), Option<InvocationId>> {
        if let Some(holder) = row
            .key_until
            .and_then(|_| self.key_holder(row, row.started_at))
        {
            return Err(Some(holder));
        }
        if charges
            .iter()
            .any(|charge| self.counter_value(charge, row.started_at).1 >= charge.limit)
        {
            return Err(None);
        }
        let is_read = row.effect == Effect::Read;
        let mut call = ModelCall {
            row: row.clone(),
            charged: Vec::new(),
            counters: Vec::new(),
            committed_before_run: !is_read,
            has_row: !is_read,
        };
        if !is_read {
            self.totals_mut(row)[0] += 1;
        }
        for charge in charges {
            let (window, used) = self.counter_value(charge, row.started_at);
            let before = self
                .counters
                .get(&counter_key(charge))
                .filter(|before| before.window_start == window);
            self.instances += 1;
            let instance = before.map_or(self.instances, |before| before.instance);
            let counted_at = row.started_at.as_millisecond();
            self.counters.insert(
                counter_key(charge),
                CounterValue {
                    window_start: window,
                    used: used + 1,
                    counted_at,
                    instance,
                },
            );
            call.counters.push((counter_key(charge), instance));
        }
        if row.key_until.is_some() {
            // The call that held the key before loses it.
            for other in self.calls.values_mut().filter(|other| {
                (
                    &other.row.caller,
                    &other.row.tool,
                    &other.row.idempotency_key,
                ) == (&row.caller, &row.tool, &row.idempotency_key)
            }) {
                other.row.key_until = None;
            }
        }
        self.ids.push(row.id);
        self.calls.insert(row.id, call);
        Ok(())
    }

    fn settle(&mut self, row: &Row, refunds: bool) {
        // The service reports each end once, and the totals rely on that.
        self.count_end(row);
        let Some(call) = self
            .calls
            .get_mut(&row.id)
            .filter(|call| call.row.state == State::Reserved)
        else {
            return;
        };
        if !call.has_row {
            call.has_row = true;
            // Rows are in the order in which they are written.
            self.ids.retain(|id| *id != row.id);
            self.ids.push(row.id);
            // A row names only counters that still count its unit.
            call.counters.retain(|(key, instance)| {
                let counter = self.counters.get(key);
                counter.is_some_and(|counter| counter.instance == *instance)
            });
            self.totals
                .entry((row.tool.to_string(), row.caller.to_string()))
                .or_default()[0] += 1;
        }
        if refunds {
            for (key, instance) in call.counters.drain(..) {
                if let Some(count) = self
                    .counters
                    .get_mut(&key)
                    .filter(|count| count.instance == instance)
                {
                    count.used -= 1;
                }
            }
        }
        call.row.state = row.state;
        call.row.key_until = row.key_until;
    }

    fn crash(&mut self, at: Timestamp) {
        self.refusals = Refusals::default();
        self.calls.retain(|_, call| call.has_row);
        let mut failed = Vec::new();
        for call in self
            .calls
            .values_mut()
            .filter(|call| call.row.state == State::Reserved)
        {
            call.row.state = State::Unknown;
            failed.push(call.row.clone());
            let keeps = call.row.effect == Effect::Write && call.row.key_until.is_some();
            call.row.key_until = keeps.then(|| at + 24.hours());
        }
        failed.iter().for_each(|row| self.count_end(row));
    }

    fn reset_counters(&mut self, tool: &str, caller: Option<&str>) {
        let named = |key: &CounterKey| caller.is_some_and(|caller| key.1 == caller);
        self.counters.retain(|key, _| {
            !(key.0 == tool && (caller.is_none() || named(key)) || key.0.is_empty() && named(key))
        });
    }

    fn prune(&mut self, before: Timestamp, at: Timestamp) {
        let oldest = InvocationId::lower_bound(before);
        let newest = self
            .ids
            .iter()
            .rev()
            .find(|id| self.calls.get(id).is_some_and(|call| call.has_row))
            .copied();
        self.calls.retain(|id, call| {
            let is_held = call.row.key_until.is_some_and(|until| until > at);
            *id >= oldest || call.row.state == State::Reserved || is_held || Some(*id) == newest
        });
        let before = before.as_millisecond();
        self.counters
            .retain(|key, count| key.3 != Per::Run || count.counted_at >= before);
    }
}

fn counter_key(charge: &Charge) -> CounterKey {
    (
        charge.tool.clone(),
        charge.caller.clone(),
        charge.run.clone(),
        charge.per,
    )
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

struct LedgerAndModel {
    ledger: Arc<dyn Ledger>,
    settings: Settings,
    model: Model,
    at: Timestamp,
}

impl LedgerAndModel {
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

    async fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Reserve(started) => {
                let reservations: Vec<_> = started
                    .into_iter()
                    .map(|call| self.build_reservation(call))
                    .collect();
                let expected: Vec<_> = reservations
                    .iter()
                    .map(|(row, charges)| self.model.reserve(row, charges))
                    .collect();
                let ids: Vec<InvocationId> = reservations.iter().map(|(row, _)| row.id).collect();
                let requests = reservations
                    .into_iter()
                    .map(|(row, charges)| self.ledger.reserve(row, charges));
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
            Operation::Read(started) => {
                let started = StartedCall {
                    key: None,
                    ..started
                };
                let (mut row, charges) = self.build_reservation(started);
                row.effect = Effect::Read;
                if charges.is_empty() {
                    return;
                }
                let expected = self.model.reserve(&row, &charges);
                let taken = self.ledger.take_units(row.id, row.started_at, charges);
                match (taken.await, expected) {
                    (Ok(reservation), Ok(())) => {
                        self.model.calls.get_mut(&row.id).unwrap().charged = reservation.charged;
                    }
                    (Err(ReserveError::LimitReached(_)), Err(None)) => {}
                    (taken, expected) => panic!("{taken:?} instead of {expected:?}"),
                }
            }
            Operation::Settle {
                which,
                state,
                refunds,
            } => {
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
                let keeps =
                    call.row.idempotency_key.is_some() && state != State::Refused && !refunds;
                let fingerprint = call.row.idempotency_key.as_ref().map(|_| "f".into());
                let key_until = keeps.then(|| self.at + 24.hours());
                let row = Row {
                    state,
                    duration_us: Some(7),
                    fingerprint,
                    key_until,
                    ..call.row
                };
                self.model.settle(&row, refunds);
                let refunds = if refunds { call.charged } else { Vec::new() };
                self.ledger.settle(Arc::new(row), refunds).await.unwrap();
            }
            Operation::Refuse { caller, tool, key } => {
                let row = started_row(tool, caller, self.at, key);
                let row = Row {
                    state: State::Refused,
                    duration_us: Some(7),
                    ..row
                };
                self.model.refuse(&row);
                self.ledger.record(Arc::new(row)).await.unwrap();
            }
            Operation::Flood {
                caller,
                tool,
                calls,
            } => {
                let row = || Row {
                    state: State::Refused,
                    duration_us: Some(7),
                    ..started_row(tool, caller, self.at, None)
                };
                let rows: Vec<Row> = (0..calls).map(|_| row()).collect();
                rows.iter().for_each(|row| self.model.refuse(row));
                let result = rows
                    .into_iter()
                    .map(|row| self.ledger.record(Arc::new(row)));
                assert!(
                    futures_util::future::join_all(result)
                        .await
                        .iter()
                        .all(Result::is_ok)
                );
            }
            Operation::Trim { at_most } => {
                self.model.trim(at_most.into());
                self.ledger.trim(self.at, at_most.into()).await.unwrap();
            }
            Operation::Clock(seconds) => self.at += seconds.seconds(),
            Operation::Reset { tool, caller } => {
                let caller = caller.map(|caller| CALLERS[caller]);
                self.model.reset_counters(TOOLS[tool], caller);
                self.ledger
                    .reset_counters(TOOLS[tool], caller)
                    .await
                    .unwrap();
            }
            Operation::Prune { age_seconds } => {
                let before = self.at - i64::from(age_seconds).seconds();
                self.model.prune(before, self.at);
                self.ledger.prune(before, self.at, 1000).await.unwrap();
            }
            Operation::Crash => {
                // Simulates a crash: the ledger is dropped without closing, and the lock is
                // released.
                self.ledger = Arc::new(super::super::memory::MemoryLedger::default());
                // A process that another test has just forked shares the lock until its `exec`. So
                // wait for the lock.
                let lock = std::fs::File::open(self.settings.base.join("test.db.lock")).unwrap();
                lock.lock().unwrap();
                drop(lock);
                self.ledger = super::super::open(&self.settings, self.at).await.unwrap();
                self.model.crash(self.at);
                self.lose_units().await;
            }
        }
    }

    /// Units that the crashed process had set aside stay used.
    async fn lose_units(&mut self) {
        for charge in all_charges() {
            let charge = std::slice::from_ref(&charge);
            // Windows never go back, so this is the newest one.
            let earliest = Timestamp::UNIX_EPOCH;
            let found = self.ledger.units_used(charge, earliest).await.unwrap();
            if let Some(counter) = self.model.counters.get_mut(&counter_key(&charge[0]))
                && counter.window_start == found[0].window_start
            {
                assert!(counter.used <= found[0].used, "a unit came back");
                assert!(found[0].used - counter.used < 20, "too many units lost");
                counter.used = found[0].used;
            }
        }
    }

    async fn compare(&self) {
        for id in &self.model.ids {
            let (found, expected) = (
                self.ledger.get(*id).await.unwrap(),
                self.model.calls.get(id),
            );
            let state = |row: &Row| (row.state, row.key_until, row.count);
            assert_eq!(
                found.map(|found| state(&found.row)),
                expected
                    .filter(|call| call.has_row)
                    .map(|call| state(&call.row)),
                "{id}"
            );
        }
        for charge in all_charges() {
            let used = self
                .ledger
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
            let found = self
                .ledger
                .find_key_holder(caller, tool, &key, self.at)
                .await
                .unwrap();
            assert_eq!(
                found.map(|row| row.id),
                self.model.key_holder(&claim, self.at)
            );
        }
        assert_eq!(
            self.ledger.counter_drift().await.unwrap(),
            0,
            "counters are what the rows say"
        );
        for usage in self.ledger.usage_totals(None).await.unwrap() {
            let totals = [usage.calls, usage.succeeded, usage.failed, usage.refused];
            assert_eq!(
                self.model
                    .totals
                    .get(&(usage.tool.clone(), usage.caller.clone())),
                Some(&totals),
                "{usage:?}"
            );
        }
    }
}

/// A fifth of `PROPTEST_CASES` (default 256), because each case needs a file of its own.
fn case_count() -> u32 {
    ProptestConfig::default().cases.div_ceil(5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(case_count()) })]

    #[test]
    fn ledger_matches_its_model(operations in proptest::collection::vec(operation_strategy(), 20..90)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The model needs the calls in the order of sending. A task that has used up its budget
        // would be suspended and could change the order.
        runtime.block_on(tokio::task::unconstrained(async {
            let folder = tempfile::tempdir().unwrap();
            let (url, base) = ("sqlite://test.db".into(), folder.path().to_owned());
            let settings = Settings { url, base, durability: Durability::Tiered, when_down: WhenDown::Refuse, retention: None, max_bytes: None, accept_loss: false };
            let ledger = super::super::open(&settings, now()).await.unwrap();
            let mut pair = LedgerAndModel { ledger, settings, model: Model::default(), at: now() };
            for operation in operations {
                pair.apply(operation).await;
            }
            pair.compare().await;
        }));
    }
}
