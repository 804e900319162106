//! Tests: a ledger with a bound of its size.

use super::*;

#[tokio::test]
async fn file_stays_below_its_bound() {
    let (ledger, folder) = open_bounded().await;
    let tool = RegisteredTool {
        name: "r".into(),
        definition: "{}".into(),
        registered_by: "a".into(),
        registered_at: now(),
    };
    ledger.register_tool(tool.clone()).await.unwrap();
    let mut protected = Vec::new();
    for _ in 0..10 {
        let row = with_long_arguments(row("w", "a", now()));
        ledger
            .reserve(row.clone(), vec![charge(99, Per::Lifetime)])
            .await
            .unwrap();
        ledger
            .settle(ended_row(&row, State::Succeeded), vec![])
            .await
            .unwrap();
        protected.push(row.id);
    }
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    let (mut first, mut last) = (None, None);
    for call in 0..400 {
        let state = if call % 4 == 0 {
            State::Refused
        } else {
            State::Succeeded
        };
        let row = with_long_arguments(Row {
            effect: Effect::Read,
            ..row("t", "a", now() + i64::from(call).seconds())
        });
        ledger.record(ended_row(&row, state)).await.unwrap();
        first = first.or(Some(row.id));
        last = Some(row.id);
        assert!(
            size("test.db") <= MIN_SIZE_BOUND,
            "{} after {call}",
            size("test.db")
        );
        assert!(
            size("test.db-wal") <= 12 << 20,
            "{} after {call}",
            size("test.db-wal")
        );
    }
    assert!(ledger.check_health().is_ok());
    assert!(
        ledger.get(first.unwrap()).await.unwrap().is_none(),
        "the oldest is deleted"
    );
    assert!(
        ledger.get(last.unwrap()).await.unwrap().is_some(),
        "the newest is there"
    );
    for id in protected {
        assert!(
            ledger.get(id).await.unwrap().is_some(),
            "what was promised stays"
        );
    }
    let rows = ledger
        .list_calls(&Query {
            tool: Some("t".into()),
            limit: 500,
            ..Query::default()
        })
        .await
        .unwrap();
    assert!(
        rows.len() > 20,
        "{} rows: most of the room is used",
        rows.len()
    );
    let usage = ledger.usage_totals(None).await.unwrap();
    let totals: Vec<_> = usage
        .iter()
        .map(|of| (of.calls, of.succeeded, of.refused))
        .collect();
    assert_eq!(totals, [(400, 300, 100), (10, 10, 0)]);
    assert_eq!(ledger.registered_tools().await.unwrap(), [tool]);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn full_ledger_refuses_until_rows_are_pruned() {
    let (ledger, folder) = open_bounded().await;
    let at = |call: i64| with_long_arguments(row("w", "a", now() + call.seconds()));
    let running = at(0);
    ledger.reserve(running.clone(), vec![]).await.unwrap();
    let mut refusal = None;
    for call in 1..200 {
        let row = at(call);
        match ledger.reserve(row.clone(), vec![]).await {
            Ok(_) => ledger
                .settle(ended_row(&row, State::Succeeded), vec![])
                .await
                .unwrap(),
            Err(error) => {
                refusal = Some(error.to_string());
                break;
            }
        }
    }
    let refusal = refusal.expect("nothing may be deleted, and there is a bound");
    assert!(
        refusal.contains("ledger.max_bytes") && refusal.contains("ledger.retention"),
        "{refusal}"
    );
    assert!(
        ledger
            .check_health()
            .is_err_and(|reason| reason.contains("ledger.max_bytes"))
    );
    assert!(ledger.trim(now(), 100).await.unwrap() == 0);
    // Running calls still have room to end. Their ends do not make room for new calls.
    ledger
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await
        .unwrap();
    assert!(ledger.reserve(at(300), vec![]).await.is_err());
    assert!(
        std::fs::metadata(folder.path().join("test.db"))
            .unwrap()
            .len()
            <= MIN_SIZE_BOUND
    );
    // Retention makes room.
    let later = Timestamp::now() + 1.hour();
    while ledger.prune(later, later, 20).await.unwrap() > 0 {}
    for _ in 0..200 {
        if ledger.check_health().is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    ledger.reserve(at(301), vec![]).await.unwrap();
}

#[tokio::test]
async fn ledger_over_its_bound_opens() {
    let (ledger, folder) = open().await;
    for call in 0..150 {
        let row = with_long_arguments(Row {
            effect: Effect::Read,
            ..row("t", "a", now() + i64::from(call).seconds())
        });
        ledger
            .record(ended_row(&row, State::Succeeded))
            .await
            .unwrap();
    }
    ledger.close().await;
    drop(ledger);
    let size = || {
        std::fs::metadata(folder.path().join("test.db"))
            .unwrap()
            .len()
    };
    let before = size();
    assert!(before > MIN_SIZE_BOUND);
    let settings = Settings {
        base: folder.path().to_owned(),
        max_bytes: Some(MIN_SIZE_BOUND),
        ..settings()
    };
    let ledger = super::super::super::open(&settings, now()).await.unwrap();
    for call in 0..300 {
        let row = with_long_arguments(Row {
            effect: Effect::Read,
            ..row("t", "a", now() + i64::from(call).seconds())
        });
        ledger
            .record(ended_row(&row, State::Succeeded))
            .await
            .unwrap();
        assert!(size() <= before, "{} grew to {}", before, size());
    }
    assert!(ledger.check_health().is_ok());
    assert_eq!(ledger.usage_totals(None).await.unwrap()[0].calls, 450);
}
