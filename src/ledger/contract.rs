//! The requirements on every engine, as one test suite that runs against each. Further guarantees
//! of an engine have tests beside it.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan};

use super::*;
use crate::call::{CacheStatus, Charge, Effect, ErrorKind, InvocationId, LimitScope, Per};

pub(super) fn now() -> Timestamp {
    "2026-06-15T12:00:30Z".parse().unwrap()
}

pub(super) fn row(tool: &str, caller: &str, at: Timestamp) -> Row {
    Row {
        id: InvocationId::new(),
        tool: tool.into(),
        caller: caller.into(),
        run_id: Some("r1".into()),
        tool_use_id: None,
        state: State::Reserved,
        kind: None,
        effect: Effect::Write,
        cache: CacheStatus::Off,
        attempts: 0,
        started_at: at,
        duration_us: None,
        arguments: r#"{"a":"it's \"quoted\" ☃"}"#.into(),
        result: None,
        origin: None,
        meta: None,
        idempotency_key: None,
        fingerprint: None,
        parent: None,
        detail: None,
        replica: None,
        key_until: None,
        count: 1,
    }
}

pub(super) fn ended_row(row: &Row, state: State) -> Arc<Row> {
    let result = Some(r#"{"content":[],"is_error":false}"#.into());
    Arc::new(Row {
        state,
        attempts: 1,
        duration_us: Some(1500),
        result,
        meta: Some("{}".into()),
        ..row.clone()
    })
}

pub(super) fn charge(limit: u64, per: Per) -> Charge {
    let (tool, caller, run) = ("t".into(), String::new(), String::new());
    Charge {
        tool,
        caller,
        run,
        per,
        limit,
        scope: LimitScope::Tool,
    }
}

async fn rows_settle_once(ledger: &dyn Ledger) {
    let first = row("t", "a", now());
    ledger.reserve(first.clone(), vec![]).await.unwrap();
    assert_eq!(
        ledger.get(first.id).await.unwrap().unwrap().row.state,
        State::Reserved
    );
    ledger
        .settle(ended_row(&first, State::Succeeded), vec![])
        .await
        .unwrap();
    ledger
        .settle(ended_row(&first, State::Failed), vec![])
        .await
        .unwrap();
    ledger
        .record(ended_row(&first, State::Failed))
        .await
        .unwrap();
    let found = ledger.get(first.id).await.unwrap().unwrap().row;
    assert_eq!(
        (found.state, found.attempts, found.duration_us),
        (State::Succeeded, 1, Some(1500))
    );
    assert_eq!(
        (found.arguments, found.run_id.as_deref()),
        (first.arguments, Some("r1"))
    );
    assert!(ledger.get(InvocationId::new()).await.unwrap().is_none());
}

async fn nested_calls_are_found_by_parent(ledger: &dyn Ledger) {
    let parent = row("agent", "a", now());
    let nested = |tool: &str| Row {
        parent: Some(parent.id),
        ..row(tool, "a", now())
    };
    let (ended_nested, running, other) = (nested("t"), nested("u"), row("t", "a", now()));
    for row in [&parent, &ended_nested, &running, &other] {
        ledger.reserve(row.clone(), vec![]).await.unwrap();
    }
    ledger
        .settle(ended_row(&ended_nested, State::Succeeded), vec![])
        .await
        .unwrap();
    let observed = ended_row(&nested("t"), State::Failed);
    ledger.record(observed.clone()).await.unwrap();
    assert_eq!(
        ledger
            .get(ended_nested.id)
            .await
            .unwrap()
            .unwrap()
            .row
            .parent,
        Some(parent.id)
    );
    assert_eq!(
        ledger.get(observed.id).await.unwrap().unwrap().row.parent,
        Some(parent.id)
    );
    assert_eq!(
        ledger.get(other.id).await.unwrap().unwrap().row.parent,
        None
    );
    let query = Query {
        parent: Some(parent.id),
        limit: 10,
        ..Query::default()
    };
    let listed = ledger.list_calls(&query).await.unwrap();
    assert_eq!(
        listed.iter().map(|row| row.id).collect::<Vec<_>>(),
        [observed.id, running.id, ended_nested.id]
    );
    assert!(listed.iter().all(|row| row.parent == Some(parent.id)));
    let narrower = Query {
        tool: Some("t".into()),
        states: vec![State::Succeeded],
        limit: 1,
        ..query.clone()
    };
    assert_eq!(
        ledger.list_calls(&narrower).await.unwrap()[0].id,
        ended_nested.id
    );
    let older = Query {
        before: Some(observed.id),
        ..query
    };
    assert_eq!(ledger.list_calls(&older).await.unwrap()[0].id, running.id);
}

async fn attempts_and_origin_are_found_with_the_call(ledger: &dyn Ledger) {
    let (source, hit) = (row("t", "a", now()), row("t", "a", now()));
    ledger
        .record(ended_row(&source, State::Succeeded))
        .await
        .unwrap();
    let answered = Row {
        origin: Some(source.id),
        result: None,
        cache: CacheStatus::Hit,
        ..(*ended_row(&hit, State::Succeeded)).clone()
    };
    for attempt in [1, 2] {
        let message = format!("attempt {attempt}");
        let failed = AttemptRow {
            invocation: hit.id,
            attempt,
            kind: ErrorKind::UpstreamFailed,
            message,
            duration_us: 7,
        };
        ledger.record_attempt(failed).await.unwrap();
    }
    ledger.record(Arc::new(answered)).await.unwrap();
    let found = ledger.get(hit.id).await.unwrap().unwrap();
    let messages: Vec<_> = found
        .attempts
        .iter()
        .map(|row| row.message.as_str())
        .collect();
    assert_eq!(messages, ["attempt 1", "attempt 2"]);
    assert_eq!(
        found.origin_result.as_deref(),
        Some(r#"{"content":[],"is_error":false}"#)
    );
}

async fn limits_are_exact_to_the_unit(ledger: &dyn Ledger) {
    let reserve = |limit, at| {
        ledger.reserve(
            row("t", "a", at),
            vec![charge(limit, Per::Minute), charge(100, Per::Lifetime)],
        )
    };
    for used in 1..=3 {
        let charged = reserve(3, now()).await.unwrap().charged;
        assert_eq!((charged[0].used, charged[1].used), (used, used));
    }
    let Err(ReserveError::LimitReached(full)) = reserve(3, now()).await else {
        panic!("a fourth of three")
    };
    assert_eq!((full.used, full.charge.per), (3, Per::Minute));
    assert_eq!(
        full.charge
            .per
            .resets_at(full.window_start)
            .unwrap()
            .to_string(),
        "2026-06-15T12:01:00Z"
    );
    // A refused call counts nowhere.
    let counters = ledger
        .units_used(&[charge(100, Per::Lifetime)], now())
        .await
        .unwrap();
    assert_eq!(counters[0].used, 3);
    // The next window is empty. The window before never comes back.
    let later = now() + 1.minute();
    assert_eq!(reserve(3, later).await.unwrap().charged[0].used, 1);
    assert_eq!(reserve(3, now()).await.unwrap().charged[0].used, 2);
    // A lowered limit counts the units that were used before.
    assert!(reserve(2, later).await.is_err());
}

async fn known_call_is_not_reserved_again(ledger: &dyn Ledger) {
    let charge = || charge(10, Per::Day);
    let ended = row("t", "a", now());
    let refused = Row {
        state: State::Refused,
        duration_us: Some(1),
        ..ended.clone()
    };
    ledger.record(Arc::new(refused)).await.unwrap();
    let reserved = row("t", "a", now());
    ledger
        .reserve(reserved.clone(), vec![charge()])
        .await
        .unwrap();
    // The others of a batch start.
    let other = row("t", "a", now());
    let (again, twice, first) = tokio::join!(
        ledger.reserve(ended.clone(), vec![charge()]),
        ledger.reserve(reserved.clone(), vec![charge()]),
        ledger.reserve(other.clone(), vec![charge()]),
    );
    assert!(matches!(again, Err(ReserveError::Ledger(_))), "{again:?}");
    assert!(matches!(twice, Err(ReserveError::Ledger(_))), "{twice:?}");
    assert_eq!(first.unwrap().charged[0].used, 2);
    let states = [
        (ended.id, State::Refused),
        (reserved.id, State::Reserved),
        (other.id, State::Reserved),
    ];
    for (id, state) in states {
        assert_eq!(ledger.get(id).await.unwrap().unwrap().row.state, state);
    }
    assert_eq!(used_units(ledger, charge(), now()).await, 2);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert!(ledger.check_health().is_ok());
}

async fn refund_returns_one_unit_of_its_window(ledger: &dyn Ledger) {
    let mut reserved = Vec::new();
    for _ in 0..3 {
        let row = row("t", "a", now());
        let charged = ledger
            .reserve(row.clone(), vec![charge(3, Per::Hour)])
            .await
            .unwrap()
            .charged;
        reserved.push((row, charged));
    }
    for (row, charged) in reserved.drain(..2) {
        ledger
            .settle(ended_row(&row, State::Cancelled), charged)
            .await
            .unwrap();
    }
    assert_eq!(
        ledger
            .units_used(&[charge(3, Per::Hour)], now())
            .await
            .unwrap()[0]
            .used,
        1
    );
    let later = now() + 1.hour();
    ledger
        .reserve(row("t", "a", later), vec![charge(3, Per::Hour)])
        .await
        .unwrap();
    let (row, charged) = reserved.remove(0);
    ledger
        .settle(ended_row(&row, State::Cancelled), charged)
        .await
        .unwrap();
    assert_eq!(
        ledger
            .units_used(&[charge(3, Per::Hour)], later)
            .await
            .unwrap()[0]
            .used,
        1
    );
    ledger.reset_counters("t", None, None).await.unwrap();
    assert_eq!(
        ledger
            .units_used(&[charge(3, Per::Hour)], later)
            .await
            .unwrap()[0]
            .used,
        0
    );
}

/// Makes a limited read: takes its units, and writes its row.
pub(super) async fn limited_read(
    ledger: &dyn Ledger,
    at: Timestamp,
    charges: Vec<Charge>,
) -> Result<u64, ReserveError> {
    let read = Row {
        effect: Effect::Read,
        ..row("t", "a", at)
    };
    let charged = ledger.take_units(read.id, at, charges).await?.charged;
    let end = ended_row(&read, State::Succeeded);
    ledger.settle(end, vec![]).await.unwrap();
    Ok(charged[0].used)
}

async fn used_units(ledger: &dyn Ledger, charge: Charge, at: Timestamp) -> u64 {
    ledger.units_used(&[charge], at).await.unwrap()[0].used
}

async fn reads_without_rows_use_each_unit_once(ledger: &dyn Ledger) {
    let charges = |limit| vec![charge(limit, Per::Minute), charge(100, Per::Lifetime)];
    for used in 1..=20 {
        let read = limited_read(ledger, now(), charges(20)).await;
        assert_eq!(read.unwrap(), used);
        assert_eq!(
            used_units(ledger, charge(20, Per::Minute), now()).await,
            used
        );
    }
    let Err(ReserveError::LimitReached(full)) = limited_read(ledger, now(), charges(20)).await
    else {
        panic!("call 21 of 20")
    };
    assert_eq!((full.used, full.charge.per), (20, Per::Minute));
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    // The next window is empty, and the limit without a window goes on.
    let later = now() + 1.minute();
    assert_eq!(limited_read(ledger, later, charges(20)).await.unwrap(), 1);
    assert_eq!(
        used_units(ledger, charge(100, Per::Lifetime), later).await,
        21
    );
    // A lowered limit counts the units that were used before.
    assert!(limited_read(ledger, later, charges(1)).await.is_err());
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let listed = ledger
        .list_calls(&Query {
            limit: 500,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(listed.len(), 21);
    assert_eq!(ledger.usage_totals(None).await.unwrap()[0].calls, 21);
}

async fn reads_without_rows_share_counters_with_reserved_calls(ledger: &dyn Ledger) {
    let day = || vec![charge(30, Per::Day)];
    for n in 0..10 {
        let first = limited_read(ledger, now(), day()).await.unwrap();
        let second = limited_read(ledger, now(), day()).await.unwrap();
        let third = ledger.reserve(row("t", "a", now()), day()).await.unwrap();
        // Units that are counted ahead are in no answer.
        let used = [first, second, third.charged[0].used];
        assert_eq!(used, [3 * n + 1, 3 * n + 2, 3 * n + 3]);
    }
    assert!(ledger.reserve(row("t", "a", now()), day()).await.is_err());
    assert!(limited_read(ledger, now(), day()).await.is_err());
    assert_eq!(used_units(ledger, charge(30, Per::Day), now()).await, 30);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

/// Each run has a counter of its own, so such a call always needs a commit.
async fn reads_with_a_limit_per_run_count_what_was_used(ledger: &dyn Ledger) {
    let run = Charge {
        run: "r".into(),
        ..charge(20, Per::Run)
    };
    for used in 1..=8 {
        let charges = vec![charge(50, Per::Hour), run.clone()];
        assert_eq!(limited_read(ledger, now(), charges).await.unwrap(), used);
    }
}

async fn refund_of_a_read_without_a_row_returns_its_unit(ledger: &dyn Ledger) {
    let run = Charge {
        run: "r".into(),
        ..charge(2, Per::Run)
    };
    let charges = || vec![charge(9, Per::Hour), run.clone()];
    for _ in 0..5 {
        let read = row("t", "a", now());
        let taken = ledger.take_units(read.id, now(), charges()).await.unwrap();
        let end = ended_row(&read, State::Cancelled);
        ledger.settle(end, taken.charged).await.unwrap();
    }
    assert_eq!(used_units(ledger, charge(9, Per::Hour), now()).await, 0);
    assert_eq!(limited_read(ledger, now(), charges()).await.unwrap(), 1);
    // A reset forgets the units of running calls too.
    let read = row("t", "a", now());
    ledger.take_units(read.id, now(), charges()).await.unwrap();
    assert!(limited_read(ledger, now(), charges()).await.is_err());
    ledger.reset_counters("t", None, None).await.unwrap();
    let end = ended_row(&read, State::Succeeded);
    ledger.settle(end, vec![]).await.unwrap();
    assert_eq!(used_units(ledger, charge(9, Per::Hour), now()).await, 0);
    assert_eq!(limited_read(ledger, now(), charges()).await.unwrap(), 1);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

async fn limit_is_exact_after_a_reset_and_after_deletions(ledger: &dyn Ledger) {
    let charges = || vec![charge(30, Per::Lifetime)];
    for used in 1..=12 {
        let read = limited_read(ledger, now(), charges()).await;
        assert_eq!(read.unwrap(), used);
    }
    ledger.prune(now() - 1.hour(), now(), 100).await.unwrap();
    assert_eq!(limited_read(ledger, now(), charges()).await.unwrap(), 13);
    ledger.reset_counters("t", None, None).await.unwrap();
    for used in 1..=30 {
        let read = limited_read(ledger, now(), charges()).await;
        assert_eq!(read.unwrap(), used);
    }
    let one_more = limited_read(ledger, now(), charges()).await;
    assert!(matches!(one_more, Err(ReserveError::LimitReached(_))));
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

async fn a_thousand_concurrent_reads_get_the_limit(ledger: Arc<dyn Ledger>) {
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                limited_read(&*ledger, now(), vec![charge(100, Per::Day)])
                    .await
                    .is_ok()
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += u32::from(task.await.unwrap());
    }
    assert_eq!(admitted, 100);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

async fn a_thousand_concurrent_calls_get_the_limit(ledger: Arc<dyn Ledger>) {
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                ledger
                    .reserve(row("t", "a", now()), vec![charge(100, Per::Day)])
                    .await
                    .is_ok()
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += u32::from(task.await.unwrap());
    }
    assert_eq!(admitted, 100);
    let rows = ledger
        .list_calls(&Query {
            limit: 500,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(rows.len(), 100, "a refused reservation leaves no row");
}

async fn lists_are_newest_first_filtered_and_paged(ledger: &dyn Ledger) {
    let mut ids = Vec::new();
    for (tool, caller, state) in [
        ("t", "a", State::Succeeded),
        ("u", "a", State::Failed),
        ("t", "b", State::Succeeded),
        ("t", "a", State::Refused),
    ] {
        let row = row(tool, caller, Timestamp::now());
        ids.push(row.id);
        ledger.record(ended_row(&row, state)).await.unwrap();
    }
    ids.reverse();
    let list = async |query: Query| -> Vec<InvocationId> {
        ledger
            .list_calls(&query)
            .await
            .unwrap()
            .into_iter()
            .map(|row| row.id)
            .collect()
    };
    let all = Query {
        limit: 10,
        ..Query::default()
    };
    assert_eq!(list(all.clone()).await, ids);
    assert_eq!(
        list(Query {
            limit: 2,
            before: Some(ids[1]),
            ..Query::default()
        })
        .await,
        ids[2..]
    );
    assert_eq!(
        list(Query {
            tool: Some("u".into()),
            ..all.clone()
        })
        .await,
        [ids[2]]
    );
    assert_eq!(
        list(Query {
            caller: Some("b".into()),
            ..all.clone()
        })
        .await,
        [ids[1]]
    );
    assert_eq!(
        list(Query {
            states: vec![State::Refused],
            ..all.clone()
        })
        .await,
        [ids[0]]
    );
    assert_eq!(
        list(Query {
            run_id: Some("other".into()),
            ..all.clone()
        })
        .await,
        []
    );
    assert_eq!(
        list(Query {
            since: Some(Timestamp::now() + 1.hour()),
            ..all.clone()
        })
        .await,
        []
    );
    assert_eq!(
        list(Query {
            since: Some(Timestamp::now() - 1.hour()),
            ..all
        })
        .await,
        ids
    );

    ledger.flush().await.unwrap();
    let usage = ledger.usage_totals(None).await.unwrap();
    let [of_a, of_b, other] = usage.as_slice() else {
        panic!("{usage:?}")
    };
    assert_eq!((of_a.calls, of_a.succeeded, of_a.refused), (2, 1, 1));
    let p50 = of_a.p50_ms.unwrap();
    assert!((p50 - 1.5).abs() < 0.03, "{p50}");
    assert_eq!(
        (of_b.caller.as_str(), other.tool.as_str(), other.failed),
        ("b", "u", 1)
    );
    assert_eq!(ledger.usage_totals(Some("b")).await.unwrap().len(), 1);
}

async fn lists_are_filtered_by_states_kind_text_and_end(ledger: &dyn Ledger) {
    let failure = r#"{"kind":"upstream_failed","detail":"Carrier.example said \"no\"","retryable":true,"for_model":""}"#;
    let error =
        r#"{"content":[{"type":"text","text":"Zürich is\u0000 unknown to us"}],"is_error":true}"#;
    let mut ids = Vec::new();
    for (tool, state, kind, detail, result) in [
        (
            "ship",
            State::Succeeded,
            None,
            None,
            r#"{"content":[{"type":"text","text":"carrier"}]}"#,
        ),
        (
            "pack",
            State::Failed,
            Some(ErrorKind::UpstreamFailed),
            Some("the backend failed"),
            failure,
        ),
        ("pack", State::Failed, None, Some("Zürich is"), error),
        (
            "pack",
            State::TimedOut,
            Some(ErrorKind::DeadlineExceeded),
            Some("too slow"),
            failure,
        ),
        (
            "pack",
            State::Failed,
            None,
            None,
            r#"{"sha256":"no text","bytes":3}"#,
        ),
    ] {
        let row = row(tool, "a", Timestamp::now());
        ids.push(row.id);
        let end = Row {
            kind,
            detail: detail.map(Into::into),
            result: Some(result.into()),
            ..(*ended_row(&row, state)).clone()
        };
        ledger.record(end.into()).await.unwrap();
    }
    let all = Query {
        limit: 10,
        ..Query::default()
    };
    let list = async |query: &Query| -> Vec<usize> {
        let rows = ledger.list_calls(query).await.unwrap();
        let place = |row: &Row| ids.iter().position(|id| *id == row.id).unwrap();
        rows.iter().map(place).collect()
    };
    let states = |states: &[State]| Query {
        states: states.to_vec(),
        ..all.clone()
    };
    assert_eq!(
        list(&states(&[State::Failed, State::TimedOut])).await,
        [4, 3, 2, 1]
    );
    assert_eq!(
        list(&states(&[State::TimedOut, State::Succeeded])).await,
        [3, 0]
    );
    assert_eq!(list(&states(&[State::Running])).await, [0; 0]);
    assert_eq!(
        list(&states(&[State::Reserved, State::TimedOut])).await,
        [3]
    );
    let kind = Query {
        kind: Some(ErrorKind::UpstreamFailed),
        ..all.clone()
    };
    assert_eq!(list(&kind).await, [1]);
    let text = |text: &str| Query {
        text: Some(text.into()),
        ..all.clone()
    };
    for (searched, found) in [
        ("carrier.EXAMPLE", vec![3, 1]),
        ("said \"no\"", vec![3, 1]),
        ("ürich is", vec![2]),
        ("unknown to us", vec![2]),
        ("too slow", vec![3]),
        ("SHI", vec![0]),
        // Names of members are no text, and percent signs no patterns.
        ("is_error", vec![]),
        ("content", vec![]),
        ("%", vec![]),
    ] {
        assert_eq!(list(&text(searched)).await, found, "{searched}");
        let of_tool = Query {
            tool: Some("pack".into()),
            ..text(searched)
        };
        let narrower: Vec<usize> = found.into_iter().filter(|at| *at != 0).collect();
        assert_eq!(list(&of_tool).await, narrower, "{searched}");
    }
    let first = Query {
        limit: 1,
        ..text("carrier.example")
    };
    assert_eq!(list(&first).await, [3]);
    let next = Query {
        before: Some(ids[3]),
        ..first
    };
    assert_eq!(list(&next).await, [1]);
    let until = |at| Query {
        until: Some(at),
        ..states(&[State::Failed])
    };
    assert_eq!(list(&until(Timestamp::now() + 1.hour())).await, [4, 2, 1]);
    assert_eq!(list(&until(Timestamp::now() - 1.hour())).await, [0; 0]);
}

async fn tokens_are_summed_by_tool_caller_and_run(ledger: &dyn Ledger) {
    let model = |input: u64| {
        format!(
            r#"{{"model":{{"requests":2,"input_tokens":{input},"output_tokens":5,"total_tokens":{},"estimated":false}}}}"#,
            input + 105
        )
    };
    for (tool, caller, run, meta) in [
        ("agent", "a", Some("r"), model(10)),
        ("agent", "a", None, model(20)),
        ("agent", "b", Some("r"), model(40)),
        ("agent", "a", Some("r"), "{}".into()),
        ("other", "a", Some("r"), model(80)),
    ] {
        let call = row(tool, caller, Timestamp::now());
        let call = Row {
            run_id: run.map(Into::into),
            meta: Some(meta.into()),
            ..(*ended_row(&call, State::Succeeded)).clone()
        };
        ledger.record(call.into()).await.unwrap();
    }
    ledger.flush().await.unwrap();
    let query = |by, caller: Option<&str>| BucketQuery {
        since: Timestamp::now() - 1.hour(),
        until: Timestamp::now() + 1.hour(),
        width_ms: i64::MAX / 2,
        by,
        caller: caller.map(str::to_owned),
        limit: 10,
    };
    let sums = async |query: BucketQuery| -> Vec<(String, String, Option<String>, [u64; 3])> {
        let rows = ledger.token_sums(&query, &["agent".into()]).await.unwrap();
        let sum = |row: TokenRow| {
            let TokenSums {
                requests,
                input_tokens,
                output_tokens,
            } = row.tokens;
            (
                row.tool,
                row.caller,
                row.run_id,
                [requests, input_tokens, output_tokens],
            )
        };
        rows.into_iter().map(sum).collect()
    };
    let of = |tool: &str, caller: &str, run: Option<&str>, sums| {
        (
            tool.to_owned(),
            caller.to_owned(),
            run.map(str::to_owned),
            sums,
        )
    };
    assert_eq!(
        sums(query(None, None)).await,
        [
            of("agent", "a", None, [4, 30, 10]),
            of("agent", "b", None, [2, 40, 5])
        ]
    );
    assert_eq!(
        sums(query(Some(UsageBy::Tool), None)).await,
        [of("agent", "", None, [6, 70, 15])]
    );
    assert_eq!(
        sums(query(Some(UsageBy::Run), Some("a"))).await,
        [
            of("", "a", None, [2, 20, 5]),
            of("", "a", Some("r"), [2, 10, 5])
        ]
    );
    let earlier = BucketQuery {
        until: Timestamp::now() - 1.hour(),
        since: Timestamp::UNIX_EPOCH,
        ..query(None, None)
    };
    assert_eq!(sums(earlier).await, []);
}

async fn results_are_stored_until_expired_or_purged(ledger: &dyn Ledger) {
    let result = |key: u8, tool: &str| StoredResult {
        key: [key; 32],
        tool: tool.into(),
        origin: InvocationId::new(),
        result: "{}".into(),
        stored_at: now(),
        expires_at: now() + 1.minute(),
    };
    for (key, tool) in [(1, "t"), (2, "u"), (1, "t")] {
        ledger.store_result(result(key, tool)).await.unwrap();
    }
    ledger.flush().await.unwrap();
    assert_eq!(
        ledger
            .find_result(&[1; 32], now())
            .await
            .unwrap()
            .unwrap()
            .result,
        "{}"
    );
    assert!(
        ledger
            .find_result(&[1; 32], now() + 1.minute())
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(ledger.purge_results(Some("t"), None).await.unwrap(), 1);
    assert!(ledger.find_result(&[1; 32], now()).await.unwrap().is_none());
    assert_eq!(ledger.purge_results(None, None).await.unwrap(), 1);
}

/// Records a call that started and ended at `at`.
pub(super) async fn record_call_at(ledger: &dyn Ledger, at: Timestamp) -> InvocationId {
    let mut row = row("t", "a", at);
    let mut id = *InvocationId::lower_bound(at).as_bytes();
    // The version and the random part.
    id[6..].copy_from_slice(&row.id.as_bytes()[6..]);
    row.id = InvocationId::from_bytes(id);
    ledger
        .record(ended_row(&row, State::Succeeded))
        .await
        .unwrap();
    row.id
}

async fn prune_deletes_old_calls_in_batches(ledger: &dyn Ledger) {
    let (early, late) = (now(), now() + 1.hour());
    for _ in 0..5 {
        let id = record_call_at(ledger, early).await;
        let kind = ErrorKind::UpstreamFailed;
        let failed = AttemptRow {
            invocation: id,
            attempt: 1,
            kind,
            message: "x".into(),
            duration_us: 7,
        };
        ledger.record_attempt(failed).await.unwrap();
    }
    let kept = record_call_at(ledger, late).await;
    let mut running = row("t", "a", early);
    running.id = InvocationId::lower_bound(early);
    ledger
        .reserve(running.clone(), vec![charge(9, Per::Lifetime)])
        .await
        .unwrap();
    let count = async || {
        ledger
            .list_calls(&Query {
                limit: 10,
                ..Query::default()
            })
            .await
            .unwrap()
            .len()
    };
    ledger.prune(late, now(), 3).await.unwrap();
    assert_eq!(count().await, 4);
    ledger.prune(late, now(), 3).await.unwrap();
    ledger.prune(late, now(), 3).await.unwrap();
    assert_eq!(ledger.prune(late, now(), 3).await.unwrap(), 0);
    assert_eq!(count().await, 2);
    assert!(ledger.get(kept).await.unwrap().is_some());
    ledger
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await
        .unwrap();
    ledger.flush().await.unwrap();
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!(
        (usage[0].calls, usage[0].succeeded),
        (7, 7),
        "totals are of all calls there were"
    );
    assert_eq!(
        ledger
            .units_used(&[charge(9, Per::Lifetime)], late)
            .await
            .unwrap()[0]
            .used,
        1,
        "counters stay"
    );
}

async fn refusals_beyond_a_hundred_a_second_share_rows(ledger: &dyn Ledger) {
    let refuse = async |caller: &str, tool: &str, at: Timestamp| {
        let refused = Row {
            kind: Some(ErrorKind::Forbidden),
            ..Row::clone(&ended_row(&row(tool, caller, at), State::Refused))
        };
        ledger.record(Arc::new(refused.clone())).await.unwrap();
        refused
    };
    let mut last = None;
    for caller in ["a", "b"] {
        for call in 0..120 {
            refuse(caller, if call % 2 == 0 { "t" } else { "u" }, now()).await;
        }
        // Calls that ran have rows of their own, however many they are.
        ledger
            .record(ended_row(&row("t", caller, now()), State::Succeeded))
            .await
            .unwrap();
        last = Some(refuse(caller, "t", now()).await);
    }
    let of_a = Query {
        caller: Some("a".into()),
        states: vec![State::Refused],
        limit: 500,
        ..Query::default()
    };
    let rows = ledger.list_calls(&of_a).await.unwrap();
    let counts: Vec<u64> = rows.iter().map(|row| row.count).collect();
    assert_eq!((counts.len(), &counts[..3]), (102, &[10, 11, 1][..]));
    assert_eq!((&*rows[0].tool, &*rows[1].tool), ("u", "t"));
    let shared = ledger.get(rows[1].id).await.unwrap().unwrap().row;
    assert_eq!(
        (shared.count, shared.kind, shared.arguments),
        (11, Some(ErrorKind::Forbidden), rows[1].arguments.clone())
    );
    assert!(ledger.get(last.unwrap().id).await.unwrap().is_none());
    // The next second starts with rows of their own again.
    let next = refuse("a", "t", now() + 1.second()).await;
    assert_eq!(ledger.get(next.id).await.unwrap().unwrap().row.count, 1);
    ledger.flush().await.unwrap();
    let usage = ledger.usage_totals(Some("a")).await.unwrap();
    let totals: Vec<_> = usage
        .iter()
        .map(|of| (of.calls, of.succeeded, of.refused))
        .collect();
    assert_eq!(totals, [(63, 1, 62), (60, 0, 60)]);
}

async fn trim_deletes_unprotected_calls_oldest_first(ledger: &dyn Ledger) {
    let recorded = async |state: State| {
        let row = Row {
            effect: Effect::Read,
            ..Row::clone(&ended_row(&row("t", "a", now()), state))
        };
        ledger.record(Arc::new(row.clone())).await.unwrap();
        row.id
    };
    let reserved = async |state: State, charges: Vec<Charge>| {
        let row = row("t", "a", now());
        ledger.reserve(row.clone(), charges).await.unwrap();
        if state != State::Reserved {
            ledger.settle(ended_row(&row, state), vec![]).await.unwrap();
        }
        row.id
    };
    let exists = async |id| ledger.get(id).await.unwrap().is_some();
    let protected = [
        reserved(State::Succeeded, vec![charge(9, Per::Lifetime)]).await,
        reserved(State::Succeeded, vec![]).await,
        reserved(State::Reserved, vec![]).await,
        reserved(State::Unknown, vec![]).await,
    ];
    let first = recorded(State::Succeeded).await;
    let failed = AttemptRow {
        invocation: first,
        attempt: 1,
        kind: ErrorKind::Internal,
        message: "x".into(),
        duration_us: 7,
    };
    ledger.record_attempt(failed).await.unwrap();
    let refused = [
        recorded(State::Refused).await,
        reserved(State::Refused, vec![]).await,
    ];
    let last = recorded(State::Failed).await;
    let stored = |key: u8, expires_at: Timestamp| StoredResult {
        key: [key; 32],
        tool: "t".into(),
        origin: first,
        result: "{}".into(),
        stored_at: now(),
        expires_at,
    };
    for result in [stored(1, now() + 1.minute()), stored(2, now() + 1.hour())] {
        ledger.store_result(result).await.unwrap();
    }
    ledger.flush().await.unwrap();
    let later = now() + 30.minutes();
    assert_eq!(
        ledger.trim(later, 2).await.unwrap(),
        1,
        "a result that has expired"
    );
    assert_eq!(ledger.trim(later, 2).await.unwrap(), 2);
    assert!(!exists(first).await && !exists(refused[0]).await && exists(refused[1]).await);
    assert_eq!(ledger.trim(later, 2).await.unwrap(), 1);
    assert!(
        !exists(refused[1]).await && exists(last).await,
        "the newest stays"
    );
    assert_eq!(ledger.trim(later, 2).await.unwrap(), 1, "the other result");
    assert!(ledger.find_result(&[2; 32], now()).await.unwrap().is_none());
    assert_eq!(ledger.trim(later, 2).await.unwrap(), 0);
    for id in protected {
        assert!(exists(id).await);
    }
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!(
        (usage[0].calls, usage[0].refused),
        (8, 2),
        "totals are of all calls there were"
    );
    assert_eq!(
        ledger
            .units_used(&[charge(9, Per::Lifetime)], now())
            .await
            .unwrap()[0]
            .used,
        1
    );
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

async fn key_is_held_by_one_call_until_expiry(ledger: &dyn Ledger) {
    let keyed = |caller: &str, at: Timestamp| {
        let (key, print) = (Some("k".into()), Some("f".into()));
        Row {
            idempotency_key: key,
            fingerprint: print,
            key_until: Some(Row::FOREVER),
            ..row("t", caller, at)
        }
    };
    let until = |row: &Row, until: Option<Timestamp>| {
        Arc::new(Row {
            key_until: until,
            ..Row::clone(&ended_row(row, State::Succeeded))
        })
    };
    let holder = async |caller: &str, at: Timestamp| {
        ledger
            .find_key_holder(caller, "t", "k", at)
            .await
            .unwrap()
            .map(|row| (row.id, row.fingerprint.unwrap().to_string()))
    };
    let first = keyed("a", now());
    ledger
        .reserve(first.clone(), vec![charge(9, Per::Lifetime)])
        .await
        .unwrap();
    let second_claim = ledger
        .reserve(keyed("a", now()), vec![charge(9, Per::Lifetime)])
        .await;
    assert!(
        matches!(second_claim, Err(ReserveError::KeyClaimed(id)) if id == first.id),
        "{second_claim:?}"
    );
    assert_eq!(
        ledger
            .units_used(&[charge(9, Per::Lifetime)], now())
            .await
            .unwrap()[0]
            .used,
        1,
        "and costs nothing"
    );
    ledger.reserve(keyed("b", now()), vec![]).await.unwrap();
    ledger
        .settle(until(&first, Some(now() + 1.hour())), vec![])
        .await
        .unwrap();
    assert_eq!(holder("a", now()).await, Some((first.id, "f".into())));
    assert_eq!(holder("a", now() + 1.hour()).await, None);
    // A call that holds its key is not deleted. Two keys in one commit are two claims.
    let (late, later) = (Timestamp::now() + 1.hour(), Timestamp::now() + 2.hours());
    ledger.prune(late, now(), 100).await.unwrap();
    assert!(ledger.get(first.id).await.unwrap().is_some());
    let second = keyed("a", now() + 2.hours());
    assert!(
        ledger
            .reserve(keyed("a", now() + 30.minutes()), vec![])
            .await
            .is_err()
    );
    ledger.reserve(second.clone(), vec![]).await.unwrap();
    assert_eq!(holder("a", now() + 2.hours()).await.unwrap().0, second.id);
    // A released key is free at once.
    ledger.settle(until(&second, None), vec![]).await.unwrap();
    let third = keyed("a", now() + 2.hours());
    ledger.reserve(third.clone(), vec![]).await.unwrap();
    ledger
        .settle(until(&third, Some(now() + 3.hours())), vec![])
        .await
        .unwrap();
    let by_key = Query {
        idempotency_key: Some("k".into()),
        limit: 10,
        ..Query::default()
    };
    assert_eq!(ledger.list_calls(&by_key).await.unwrap().len(), 4);
    let of_a = Query {
        caller: Some("a".into()),
        ..by_key
    };
    let found = ledger.list_calls(&of_a).await.unwrap();
    assert_eq!(
        found.iter().map(|row| row.id).collect::<Vec<_>>(),
        [third.id, second.id, first.id]
    );
    ledger.prune(later, now() + 4.hours(), 100).await.unwrap();
    assert!(ledger.get(first.id).await.unwrap().is_none());
}

async fn switches_are_stored(ledger: &dyn Ledger) {
    let switch = |enabled| Switch {
        tool: "t".into(),
        enabled,
    };
    ledger.set_switch(switch(false), None).await.unwrap();
    ledger.set_switch(switch(true), None).await.unwrap();
    assert_eq!(ledger.list_switches().await.unwrap(), [switch(true)]);
}

async fn registered_tools_are_stored_replaced_and_deleted(ledger: &dyn Ledger) {
    let tool = |name: &str, definition: &str| RegisteredTool {
        name: name.into(),
        definition: definition.into(),
        registered_by: "it's \"quoted\"".into(),
        registered_at: now(),
    };
    for registered in [tool("b", "{}"), tool("a", "{}"), tool("b", r#"{"n":"☃"}"#)] {
        ledger.register_tool(registered).await.unwrap();
    }
    assert_eq!(
        ledger.registered_tools().await.unwrap(),
        [tool("a", "{}"), tool("b", r#"{"n":"☃"}"#)]
    );
    assert!(ledger.unregister_tool("a", None).await.unwrap());
    assert!(!ledger.unregister_tool("a", None).await.unwrap());
    assert_eq!(ledger.registered_tools().await.unwrap().len(), 1);
}

async fn closed_ledger_refuses_writes(ledger: &dyn Ledger) {
    ledger.close().await;
    assert!(
        ledger
            .record(ended_row(&row("t", "a", now()), State::Succeeded))
            .await
            .is_err()
    );
}

/// A call that starts now, and has ended after `took`.
fn call_of(tool: &str, caller: &str, run: Option<&str>, state: State, took: i64) -> Arc<Row> {
    let at = Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap();
    let run_id = run.map(Into::into);
    let row = Row {
        run_id,
        ..row(tool, caller, at)
    };
    Arc::new(Row {
        duration_us: Some(took),
        ..(*ended_row(&row, state)).clone()
    })
}

async fn ended_calls_are_found_by_their_end(ledger: &dyn Ledger) {
    let long = call_of("t", "a", None, State::Succeeded, 60_000_000);
    let short = call_of("t", "b", None, State::Failed, 1000);
    let arguments = format!("[{}]", "1,".repeat(100) + "1").into();
    let wordy = Arc::new(Row {
        arguments,
        ..(*call_of("t", "a", None, State::Refused, 1000)).clone()
    });
    let running = row("t", "a", Timestamp::now());
    for row in [&long, &short, &wordy] {
        ledger.record(row.clone()).await.unwrap();
    }
    ledger.reserve(running, vec![]).await.unwrap();
    let all = EndedQuery {
        caller: None,
        from: long.id,
        late_starts: true,
        ended_since: Timestamp::now() - 1.minute(),
        not_of_replica: None,
        max_arguments: 100,
        limit: 10,
    };
    let find = async |query: EndedQuery| {
        let rows = ledger.list_ended(&query).await.unwrap();
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(find(all.clone()).await, [wordy.id, short.id, long.id]);
    let rows = ledger.list_ended(&all).await.unwrap();
    assert_eq!(&*rows[0].arguments, "null");
    assert_eq!(
        (&rows[1].arguments, &rows[1].result),
        (&short.arguments, &None)
    );
    let newest = EndedQuery {
        limit: 1,
        ..all.clone()
    };
    assert_eq!(find(newest).await, [wordy.id]);
    let later = EndedQuery {
        ended_since: Timestamp::now() + 10.seconds(),
        ..all.clone()
    };
    assert_eq!(find(later).await, [long.id], "it began first and ends last");
    let own = EndedQuery {
        caller: Some("a".into()),
        ..all.clone()
    };
    assert_eq!(find(own).await, [wordy.id, long.id]);
    let after = EndedQuery {
        from: short.id,
        ..all.clone()
    };
    assert_eq!(find(after).await, [wordy.id, short.id]);
    // A call that waited for a person has an old id. Others with such ids are not found.
    let waited = ApprovalRow {
        expires_at: Timestamp::now(),
        ..approval("t", "a", None)
    };
    let late = Arc::new(Row {
        id: waited.invocation,
        ..(*call_of("t", "a", None, State::Succeeded, 1000)).clone()
    });
    ledger.request_approval(waited).await.unwrap();
    ledger.record(late.clone()).await.unwrap();
    let after_all = EndedQuery {
        from: InvocationId::new(),
        ..all.clone()
    };
    assert_eq!(find(after_all.clone()).await, [late.id]);
    let no_late = EndedQuery {
        late_starts: false,
        ..after_all
    };
    assert_eq!(find(no_late).await, []);
    if ledger.replica().is_some() {
        let of_others = EndedQuery {
            not_of_replica: ledger.replica(),
            ..all
        };
        assert_eq!(find(of_others).await, []);
    }
}

async fn calls_are_counted_by_time(ledger: &dyn Ledger) {
    let hit = Arc::new(Row {
        cache: CacheStatus::Hit,
        ..(*call_of("t", "a", Some("r1"), State::Succeeded, 1000)).clone()
    });
    let rows = [
        hit,
        call_of("t", "a", Some("r2"), State::Failed, 3000),
        call_of("t", "a", None, State::Refused, 9_000_000),
        call_of("t", "b", None, State::Unknown, 5000),
        call_of("u", "b", None, State::Succeeded, 7000),
    ];
    for row in &rows {
        ledger.record(row.clone()).await.unwrap();
    }
    ledger
        .reserve(row("u", "b", Timestamp::now()), vec![])
        .await
        .unwrap();
    // The bucket is longer than the test, whenever it runs.
    let all = BucketQuery {
        since: Timestamp::now() - 1.hour(),
        until: Timestamp::now() + 1.hour(),
        width_ms: i64::MAX / 2,
        by: None,
        caller: None,
        limit: 10,
    };
    let count = async |query: BucketQuery| ledger.usage_buckets(&query).await.unwrap();
    let counted = count(all.clone()).await;
    let [ta, tb, ub] = counted.as_slice() else {
        panic!("{counted:?}")
    };
    let UsageRow {
        calls,
        succeeded,
        failed,
        refused,
        cache_hits,
        ..
    } = ta.counts;
    assert_eq!((calls, succeeded, failed), (3, 1, 1));
    assert_eq!((refused, cache_hits, ta.start_ms), (1, 1, 0));
    assert_eq!((&*tb.counts.tool, &*tb.counts.caller), ("t", "b"));
    assert_eq!((ub.counts.calls, ub.counts.succeeded), (2, 1), "one runs");
    let p99 = ta.counts.p99_ms.unwrap();
    assert!((p99 - 3.0).abs() <= 0.07, "without the refused call: {p99}");
    let by = |by| BucketQuery {
        by: Some(by),
        ..all.clone()
    };
    let tools = count(by(UsageBy::Tool)).await;
    let shown = |row: &BucketRow| {
        let UsageRow {
            tool,
            caller,
            calls,
            ..
        } = &row.counts;
        (tool.clone(), caller.clone(), row.run_id.clone(), *calls)
    };
    let shown = |rows: &[BucketRow]| rows.iter().map(shown).collect::<Vec<_>>();
    let of = |tool: &str, caller: &str, run: Option<&str>, calls| {
        (
            tool.to_owned(),
            caller.to_owned(),
            run.map(str::to_owned),
            calls,
        )
    };
    assert_eq!(shown(&tools), [of("t", "", None, 4), of("u", "", None, 2)]);
    let callers = count(by(UsageBy::Caller)).await;
    assert_eq!(
        shown(&callers),
        [of("", "a", None, 3), of("", "b", None, 3)]
    );
    let runs = BucketQuery {
        caller: Some("a".into()),
        ..by(UsageBy::Run)
    };
    let runs = count(runs).await;
    assert_eq!(
        shown(&runs),
        [
            of("", "a", None, 1),
            of("", "a", Some("r1"), 1),
            of("", "a", Some("r2"), 1)
        ]
    );
    let past = BucketQuery {
        until: Timestamp::now() - 1.minute(),
        ..all.clone()
    };
    assert_eq!(count(past).await, []);
    let narrow = BucketQuery {
        width_ms: 1,
        limit: 1,
        ..all
    };
    let first = count(narrow).await;
    assert_eq!(first[0].start_ms, rows[0].started_at.as_millisecond());
    assert_eq!(first.len(), 1);
}

async fn exported_calls_are_whole_and_oldest_first(ledger: &dyn Ledger) {
    let old = record_call_at(ledger, now() - 2.hours()).await;
    let middle = record_call_at(ledger, now() - 1.hour()).await;
    let answered = Row {
        origin: Some(middle),
        result: None,
        cache: CacheStatus::Hit,
        idempotency_key: Some("k".into()),
        parent: Some(old),
        detail: Some("a sentence".into()),
        arguments: format!(r#"{{"a":"{}"}}"#, "x".repeat(LISTED_ARGUMENTS)).into(),
        ..(*ended_row(&row("u", "b", now()), State::Succeeded)).clone()
    };
    ledger.record(Arc::new(answered.clone())).await.unwrap();
    let attempt = AttemptRow {
        invocation: answered.id,
        attempt: 1,
        kind: ErrorKind::UpstreamFailed,
        message: "503".into(),
        duration_us: 7,
    };
    ledger.record_attempt(attempt).await.unwrap();
    let running = row("t", "a", now());
    ledger.reserve(running, vec![]).await.unwrap();
    ledger.flush().await.unwrap();

    let export = async |query: ExportQuery| {
        let calls = ledger.export_calls(&query).await.unwrap();
        calls.iter().map(|call| call.row.id).collect::<Vec<_>>()
    };
    let all = ExportQuery {
        limit: 10,
        ..ExportQuery::default()
    };
    assert_eq!(export(all.clone()).await, [old, middle, answered.id]);
    for (query, ids) in [
        (
            ExportQuery {
                limit: 2,
                ..all.clone()
            },
            vec![old, middle],
        ),
        (
            ExportQuery {
                after: Some(middle),
                ..all.clone()
            },
            vec![answered.id],
        ),
        (
            ExportQuery {
                tool: Some("u".into()),
                ..all.clone()
            },
            vec![answered.id],
        ),
        (
            ExportQuery {
                since: Some(now() - 1.hour()),
                until: Some(now()),
                ..all.clone()
            },
            vec![middle],
        ),
        (
            ExportQuery {
                until: Some(now() - 1.hour()),
                ..all.clone()
            },
            vec![old],
        ),
    ] {
        assert_eq!(export(query.clone()).await, ids, "{query:?}");
    }
    let calls = ledger.export_calls(&all).await.unwrap();
    let found = calls.last().unwrap();
    assert_eq!(
        (&found.row.arguments, &found.row.detail),
        (&answered.arguments, &answered.detail)
    );
    assert_eq!(
        (found.row.parent, found.row.origin),
        (Some(old), Some(middle))
    );
    assert_eq!(
        found.origin_result, calls[1].row.result,
        "the result that answered the call"
    );
    assert_eq!(
        (found.attempts.len(), found.attempts[0].duration_us),
        (1, 7)
    );
}

async fn imported_calls_count_once(ledger: &dyn Ledger) {
    let known = record_call_at(ledger, now()).await;
    let imported = |state, count| RecordedCall {
        row: Row {
            count,
            idempotency_key: Some("k".into()),
            ..(*ended_row(&row("u", "b", now()), state)).clone()
        },
        attempts: Vec::new(),
        origin_result: None,
    };
    let (good, refused) = (imported(State::Succeeded, 1), imported(State::Refused, 7));
    let mut failed = imported(State::Failed, 1);
    failed.attempts.push(AttemptRow {
        invocation: failed.row.id,
        attempt: 1,
        kind: ErrorKind::UpstreamFailed,
        message: "503".into(),
        duration_us: 7,
    });
    let mut again = good.clone();
    (again.row.id, again.row.state) = (known, State::Failed);
    let calls = vec![
        good.clone(),
        refused.clone(),
        failed.clone(),
        again,
        good.clone(),
    ];
    assert_eq!(ledger.import_calls(calls.clone()).await.unwrap(), 3);
    assert_eq!(
        ledger.import_calls(calls).await.unwrap(),
        0,
        "a repetition changes nothing"
    );
    assert_eq!(ledger.import_calls(Vec::new()).await.unwrap(), 0);

    let totals = ledger.usage_totals(Some("b")).await.unwrap();
    let counts = |row: &UsageRow| [row.calls, row.succeeded, row.failed, row.refused];
    assert_eq!(
        totals.iter().map(counts).collect::<Vec<_>>(),
        [[9, 1, 1, 7]]
    );
    let found = ledger.get(failed.row.id).await.unwrap().unwrap();
    assert_eq!(
        (found.row.state, &found.row.result),
        (State::Failed, &failed.row.result)
    );
    assert_eq!(found.row.idempotency_key.as_deref(), Some("k"));
    assert_eq!(found.attempts.len(), 1);
    let shared = ledger.get(refused.row.id).await.unwrap().unwrap().row;
    assert_eq!(shared.count, 7);
    let unchanged = ledger.get(known).await.unwrap().unwrap().row;
    assert_eq!(unchanged.state, State::Succeeded, "a known call stays");
    let listed = Query {
        caller: Some("b".into()),
        limit: 10,
        ..Query::default()
    };
    assert_eq!(ledger.list_calls(&listed).await.unwrap().len(), 3);
    let holder = ledger.find_key_holder("b", "u", "k", now()).await.unwrap();
    assert!(holder.is_none(), "the key of an imported call is free");
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

pub(super) fn approval(tool: &str, caller: &str, key: Option<&str>) -> ApprovalRow {
    ApprovalRow {
        invocation: InvocationId::new(),
        tool: tool.into(),
        caller: caller.into(),
        state: ApprovalState::Waiting,
        idempotency_key: key.map(Into::into),
        approvers: ApprovalRow::join_approvers(["carol", "dave"]),
        request: r#"{"arguments":{"a":"it's ☃"}}"#.into(),
        call: Some("{}".into()),
        requested_at: now(),
        expires_at: now() + 1.hour(),
        decided_at: None,
        decided_by: None,
        note: None,
        changed_arguments: None,
        runner: "one".into(),
        done: false,
        notified: false,
    }
}

fn approve(row: &ApprovalRow) -> ApprovalChange {
    ApprovalChange {
        unexpired_at: Some(now()),
        decision: Some(ApprovalDecision {
            at: now(),
            by: "carol".into(),
            note: Some("fine".into()),
            changed_arguments: Some(r#"{"a":2}"#.into()),
        }),
        ..ApprovalChange::new(
            row.invocation,
            ApprovalState::Waiting,
            ApprovalState::Approved,
            "two".into(),
        )
    }
}

pub(super) async fn approval_changes_once_and_only_as_expected(ledger: &dyn Ledger) {
    let row = approval("pay", "ann", None);
    assert_eq!(ledger.request_approval(row.clone()).await.unwrap(), None);
    let late = ApprovalChange {
        unexpired_at: Some(now() + 1.hour()),
        ..approve(&row)
    };
    assert!(
        !ledger.change_approval(late).await.unwrap(),
        "it has expired"
    );
    assert!(ledger.change_approval(approve(&row)).await.unwrap());
    assert!(
        !ledger.change_approval(approve(&row)).await.unwrap(),
        "twice"
    );
    let found = ledger.find_approval(row.invocation).await.unwrap().unwrap();
    assert_eq!(found.state, ApprovalState::Approved);
    assert_eq!(
        (found.decided_by.as_deref(), found.note.as_deref()),
        (Some("carol"), Some("fine"))
    );
    assert_eq!(found.changed_arguments.as_deref(), Some(r#"{"a":2}"#));
    assert_eq!(
        (&*found.runner, found.request),
        ("two", row.request.clone())
    );
    let start = |runner: &str| ApprovalChange {
        from_runner: Some(runner.into()),
        ..ApprovalChange::new(
            row.invocation,
            ApprovalState::Approved,
            ApprovalState::Started,
            "two".into(),
        )
    };
    assert!(
        !ledger.change_approval(start("one")).await.unwrap(),
        "another process"
    );
    assert!(ledger.change_approval(start("two")).await.unwrap());
    let (from, to) = (ApprovalState::Started, ApprovalState::Started);
    let done = ApprovalChange {
        done: true,
        ..ApprovalChange::new(row.invocation, from, to, "two".into())
    };
    assert!(ledger.change_approval(done).await.unwrap());
    let found = ledger.find_approval(row.invocation).await.unwrap().unwrap();
    assert_eq!((found.done, found.call.as_deref()), (true, None));
    assert_eq!(
        found.decided_by.as_deref(),
        Some("carol"),
        "the decision stays"
    );
}

pub(super) async fn approval_holds_its_key_until_it_is_done(ledger: &dyn Ledger) {
    let first = approval("pay", "ann", Some("k"));
    assert_eq!(ledger.request_approval(first.clone()).await.unwrap(), None);
    let again = approval("pay", "ann", Some("k"));
    let holder = ledger.request_approval(again.clone()).await.unwrap();
    assert_eq!(holder, Some(first.invocation));
    for other in [
        approval("pay", "bob", Some("k")),
        approval("ask", "ann", Some("k")),
        approval("pay", "ann", None),
        approval("pay", "ann", None),
    ] {
        assert_eq!(ledger.request_approval(other).await.unwrap(), None);
    }
    let (from, to) = (ApprovalState::Waiting, ApprovalState::Denied);
    let deny = ApprovalChange {
        done: true,
        ..ApprovalChange::new(first.invocation, from, to, "one".into())
    };
    assert!(ledger.change_approval(deny).await.unwrap());
    assert_eq!(
        ledger.request_approval(again).await.unwrap(),
        None,
        "the key is free"
    );
}

pub(super) async fn marks_of_approvals_are_kept(ledger: &dyn Ledger) {
    let rows = [approval("pay", "ann", None), approval("pay", "ann", None)];
    for row in &rows {
        ledger.request_approval(row.clone()).await.unwrap();
    }
    let [marked, other] = rows.map(|row| row.invocation);
    let unnotified = async || {
        let query = ApprovalQuery {
            unnotified: true,
            limit: 9,
            ..ApprovalQuery::default()
        };
        let found = ledger.list_approvals(&query).await.unwrap();
        found.iter().map(|row| row.invocation).collect::<Vec<_>>()
    };
    assert_eq!(unnotified().await, [other, marked]);
    ledger
        .mark_approval(marked, ApprovalMark::Notified)
        .await
        .unwrap();
    assert_eq!(unnotified().await, [other]);
    let message: Arc<str> = r#"{"a":"☃"}"#.into();
    let mark = ApprovalMark::Message(message.clone());
    ledger.mark_approval(marked, mark).await.unwrap();
    assert_eq!(
        ledger.approval_message(marked).await.unwrap(),
        Some(message)
    );
    assert_eq!(ledger.approval_message(other).await.unwrap(), None);
    assert_eq!(unnotified().await, [other], "the marks are independent");
}

pub(super) async fn approvals_are_listed_newest_first_and_filtered(ledger: &dyn Ledger) {
    let rows = [
        approval("pay", "ann", None),
        approval("ask", "ann", None),
        approval("pay", "bob", None),
    ];
    for row in &rows {
        ledger.request_approval(row.clone()).await.unwrap();
    }
    assert!(ledger.change_approval(approve(&rows[2])).await.unwrap());
    let list = async |query: ApprovalQuery| {
        let limit = if query.limit == 0 { 9 } else { query.limit };
        let found = ledger
            .list_approvals(&ApprovalQuery { limit, ..query })
            .await;
        let position = |found: &ApprovalRow| {
            rows.iter()
                .position(|row| row.invocation == found.invocation)
        };
        found
            .unwrap()
            .iter()
            .filter_map(position)
            .collect::<Vec<_>>()
    };
    let all = ApprovalQuery::default();
    assert_eq!(list(all.clone()).await, [2, 1, 0]);
    assert_eq!(
        list(ApprovalQuery {
            limit: 2,
            ..all.clone()
        })
        .await,
        [2, 1]
    );
    let before = Some(rows[1].invocation);
    assert_eq!(
        list(ApprovalQuery {
            before,
            ..all.clone()
        })
        .await,
        [0]
    );
    let state = |state| ApprovalQuery {
        state: Some(state),
        ..ApprovalQuery::default()
    };
    assert_eq!(list(state(ApprovalState::Waiting)).await, [1, 0]);
    assert_eq!(list(state(ApprovalState::Approved)).await, [2]);
    let tool = Some("pay".to_owned());
    assert_eq!(
        list(ApprovalQuery {
            tool,
            ..all.clone()
        })
        .await,
        [2, 0]
    );
    let of = |name: &str| ApprovalQuery {
        visible_to: Some(name.into()),
        ..ApprovalQuery::default()
    };
    assert_eq!(list(of("bob")).await, [2]);
    assert_eq!(list(of("dave")).await, [2, 1, 0], "dave may decide");
    assert_eq!(list(of("dav")).await, [0; 0]);
    let due = |at| ApprovalQuery {
        due_at: Some(at),
        ..ApprovalQuery::default()
    };
    assert_eq!(list(due(now())).await, [2], "decided, and not done");
    assert_eq!(list(due(now() + 1.hour())).await, [2, 1, 0]);
    assert_eq!(ledger.count_waiting("ann").await.unwrap(), (2, 2));
    assert_eq!(ledger.count_waiting("dave").await.unwrap(), (0, 2));
}

macro_rules! contract {
    ($open:expr) => {
        contract!(@ $open, exported_calls_are_whole_and_oldest_first, imported_calls_count_once, ended_calls_are_found_by_their_end, calls_are_counted_by_time, tokens_are_summed_by_tool_caller_and_run, rows_settle_once, attempts_and_origin_are_found_with_the_call, nested_calls_are_found_by_parent, limits_are_exact_to_the_unit,
            known_call_is_not_reserved_again, refund_returns_one_unit_of_its_window, lists_are_filtered_by_states_kind_text_and_end, lists_are_newest_first_filtered_and_paged,
            results_are_stored_until_expired_or_purged, key_is_held_by_one_call_until_expiry,
            prune_deletes_old_calls_in_batches, refusals_beyond_a_hundred_a_second_share_rows,
            trim_deletes_unprotected_calls_oldest_first,
            reads_without_rows_use_each_unit_once, reads_without_rows_share_counters_with_reserved_calls,
            reads_with_a_limit_per_run_count_what_was_used, refund_of_a_read_without_a_row_returns_its_unit,
            limit_is_exact_after_a_reset_and_after_deletions,
            approval_changes_once_and_only_as_expected, approval_holds_its_key_until_it_is_done,
            approvals_are_listed_newest_first_and_filtered, marks_of_approvals_are_kept,
            switches_are_stored, registered_tools_are_stored_replaced_and_deleted, closed_ledger_refuses_writes);

        #[tokio::test(flavor = "multi_thread")]
        async fn a_thousand_concurrent_calls_get_the_limit() {
            let Some((ledger, _guard)) = $open.await else {
                return;
            };
            super::a_thousand_concurrent_calls_get_the_limit(ledger).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_thousand_concurrent_reads_get_the_limit() {
            let Some((ledger, _guard)) = $open.await else {
                return;
            };
            super::a_thousand_concurrent_reads_get_the_limit(ledger).await;
        }
    };
    (@ $open:expr, $($test:ident),*) => {
        $(#[tokio::test]
        async fn $test() {
            let Some((ledger, _guard)) = $open.await else {
                return;
            };
            super::$test(&*ledger).await;
        })*
    };
}

pub(super) mod sqlite {
    use super::*;

    pub(in crate::ledger) fn settings() -> Settings {
        let (url, durability) = ("sqlite://test.db".into(), Durability::Tiered);
        Settings {
            url,
            base: std::path::PathBuf::new(),
            durability,
            when_down: WhenDown::Refuse,
            retention: None,
            max_bytes: None,
            accept_loss: false,
        }
    }

    pub(in crate::ledger) async fn open() -> (Arc<dyn Ledger>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            base: folder.path().to_owned(),
            ..settings()
        };
        (super::super::open(&settings, now()).await.unwrap(), folder)
    }

    contract!(async { Some(open().await) });
}

mod postgres {
    use super::super::test_server::TestServer;
    use super::*;

    async fn open() -> Option<(Arc<dyn Ledger>, Arc<TestServer>)> {
        let server = TestServer::shared()?;
        let settings = Settings {
            url: server.create_ledger_database().await,
            ..sqlite::settings()
        };
        Some((super::super::open(&settings, now()).await.unwrap(), server))
    }

    contract!(open());
}

mod memory {
    use super::*;

    async fn open() -> Option<(Arc<dyn Ledger>, ())> {
        Some((Arc::new(super::super::memory::MemoryLedger::default()), ()))
    }

    contract!(open());
}
