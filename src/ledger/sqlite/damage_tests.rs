//! Tests: files that were damaged, or that lack commits.

use super::*;

#[tokio::test]
async fn lost_commits_are_detected_and_files_unchanged() {
    let (folder, ids) = killed_ledger(10).await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let wal = folder.path().join("test.db-wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&wal, bytes).unwrap();
    let before = read_all_files(folder.path());
    for _ in 0..2 {
        let Err(error) = super::super::super::open(&settings, now()).await else {
            panic!("a silent loss")
        };
        let Error::MissingCommits { commits, .. } = error else {
            panic!("{error}")
        };
        assert!((1..10).contains(&commits), "{error}");
        assert!(error.to_string().contains("--accept-loss"), "{error}");
        assert_eq!(read_all_files(folder.path()), before);
    }
    // Opening for reading is permitted.
    assert!(open_read_only(&settings).await.is_ok());

    let accepting = Settings {
        accept_loss: true,
        ..settings.clone()
    };
    let ledger = super::super::super::open(&accepting, now()).await.unwrap();
    assert!(
        ledger.get(ids[0]).await.unwrap().is_some() && ledger.get(ids[9]).await.unwrap().is_none()
    );
    record_call_at(&*ledger, now()).await;
    ledger.close().await;
    super::super::super::open(&settings, now()).await.unwrap();
}

#[tokio::test]
async fn damaged_row_is_never_returned() {
    let (ledger, folder) = open().await;
    let mut other = connect(folder.path()).await;
    let key = |key: &str| Row {
        idempotency_key: Some(key.into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        parent: Some(InvocationId::new()),
        ..row("t", "a", now())
    };
    for damage in [
        "id = randomblob(16)",
        "tool = 'u'",
        "run_id = 'r2'",
        "run_id = null",
        "effect = 'read'",
        "cache = 'hit'",
        "origin = randomblob(16)",
        "idempotency_key = 'k=2'",
        "fingerprint = 'g'",
        "parent = randomblob(16)",
        "parent = null",
        "result = null",
        "count = 2",
        "result = replace(result, 'false', 'fblse')",
        "arguments = '{}'",
        "state = 'failed'",
        "state = 'lucceeded'",
        "duration_us = 1501",
        "started_at = started_at + 1",
        "tool_use_id = ''",
        "meta = null",
        "caller = 'b'",
        "attempts = 3",
        "kind = 'internal'",
        "result = cast(x'c328' as text)",
        "sum = sum + (1 << 40)",
    ] {
        let (intact, damaged) = (key("intact"), key(damage));
        for row in [&intact, &damaged] {
            ledger.reserve(row.clone(), vec![]).await.unwrap();
            let end = Row {
                key_until: Some(now() + 1.hour()),
                ..(*ended_row(row, State::Succeeded)).clone()
            };
            let end = if damage.starts_with("origin") {
                Row {
                    origin: Some(intact.id),
                    ..end
                }
            } else {
                end
            };
            ledger.settle(Arc::new(end), vec![]).await.unwrap();
        }
        let sql = format!(
            "pragma ignore_check_constraints = on; drop trigger if exists invocation_ends_once; \
             update invocation set {damage} where idempotency_key like '%=%'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut other)
            .await
            .unwrap();
        assert!(ledger.get(intact.id).await.unwrap().is_some());
        if damage.starts_with("id =") {
            // The row can be found only by its key.
            assert!(ledger.get(damaged.id).await.unwrap().is_none());
        } else {
            let read = ledger.get(damaged.id).await;
            assert!(
                matches!(read, Err(Error::DamagedRow(id)) if id == damaged.id),
                "{damage}: {read:?}"
            );
        }
        if !["caller", "tool =", "idempotency_key"]
            .iter()
            .any(|found_by| damage.starts_with(found_by))
        {
            let read = ledger.find_key_holder("a", "t", damage, now()).await;
            assert!(
                matches!(read, Err(Error::DamagedRow(_))),
                "{damage}: {read:?}"
            );
        }
        sqlx::raw_sql("delete from invocation")
            .execute(&mut other)
            .await
            .unwrap();
    }
    let stored = StoredResult {
        key: [7; 32],
        tool: "t".into(),
        origin: InvocationId::new(),
        result: "{\"content\":[]}".into(),
        stored_at: now(),
        expires_at: now() + 1.hour(),
    };
    ledger.store_result(stored).await.unwrap();
    ledger.flush().await.unwrap();
    assert!(ledger.find_result(&[7; 32], now()).await.unwrap().is_some());
    sqlx::raw_sql("update stored_result set result = '{\"content\":{}}'")
        .execute(&mut other)
        .await
        .unwrap();
    assert!(
        ledger.find_result(&[7; 32], now()).await.unwrap().is_none(),
        "a miss, no wrong answer"
    );
}
