//! Tests: connections, their state and their end.

use super::*;

#[tokio::test]
async fn server_timeout_ends_uncancelled_statement() {
    let Some(shop) = Shop::new("time_limit").await else {
        return;
    };
    let runner = shop.tool("select pg_sleep(600)", Effect::Read);
    let invocation = invocation();
    // The future is polled on after its deadline: only the server's own limit can end the
    // statement.
    let deadline = tokio::time::Instant::now() + Duration::from_millis(100);
    let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
    let result = runner.call(object(json!({})), context).await;
    assert!(
        matches!(&result, Err(ToolError::Upstream(UpstreamFailure { message, .. })) if message.contains("statement timeout")),
        "{result:?}"
    );
    shop.run("alter database time_limit set statement_timeout = '200ms'")
        .await;
    let strict = Shop {
        server: shop.server.clone(),
        name: shop.name.clone(),
        databases: Databases::default(),
    };
    let started = Instant::now();
    assert!(
        strict
            .run_read("select pg_sleep(600)", json!({}))
            .await
            .is_err()
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the database's own limit holds"
    );
}

#[tokio::test]
async fn connections_are_shared_and_bounded() {
    let Some(shop) = Shop::new("shared").await else {
        return;
    };
    let tools = [
        shop.tool("select pg_backend_pid() as p", Effect::Read),
        shop.tool("select pg_backend_pid() as p, 1 as x", Effect::Write),
    ];
    let first_pid = result_data(call(&tools[0], json!({})).await.0)[0]["p"].clone();
    assert_eq!(
        result_data(call(&tools[1], json!({})).await.0)[0]["p"],
        first_pid
    );
    let prepared = shop.tool(
        "select count(*) as n from pg_prepared_statements where statement like '%needle%'",
        Effect::Read,
    );
    for _ in 0..3 {
        let times = result_data(call(&prepared, json!({})).await.0);
        assert!(times[0]["n"].as_i64() <= Some(2), "prepared once: {times}");
    }
    let slow = shop.tool("select pg_backend_pid() as p, pg_sleep(0.05)", Effect::Read);
    let many: Vec<_> = (0..40).map(|_| call(&slow, json!({}))).collect();
    let mut seen = std::collections::BTreeSet::new();
    for (result, _) in futures_util::future::join_all(many).await {
        seen.insert(result_data(result)[0]["p"].to_string());
    }
    assert!((2..=8).contains(&seen.len()), "{seen:?}");
}

#[tokio::test]
async fn calls_resume_after_a_server_restart() {
    // A server of its own, because the other tests must not lose theirs.
    let Some(server) = TestServer::start() else {
        return;
    };
    let shop = Shop::on_server(Arc::new(server), "away").await;
    let read = shop.tool("select count(*) as n from customers", Effect::Read);
    let write = shop.tool("update customers set year = 1", Effect::Write);
    for runner in [&read, &write] {
        call(runner, json!({})).await.0.unwrap();
    }
    shop.server.stop();
    for runner in [&read, &write] {
        let started = Instant::now();
        let result = call(runner, json!({})).await.0;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable: true,
            unavailable: true,
            not_delivered: true,
            ..
        })) = result
        else {
            panic!("{result:?}")
        };
        assert!(
            message.contains("/away: no connection: Connection refused"),
            "{message}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "it does not wait for a server that refuses"
        );
    }
    let finding = first_message(shop.build_tool("select 1 as x", Effect::Read, json!({})));
    assert!(
        finding.starts_with("warning: 127.0.0.1:")
            && finding.contains("calls fail until this is corrected"),
        "{finding}"
    );
    let late = shop
        .build_tool("delete from customers", Effect::Read, json!({}))
        .unwrap()
        .0;
    shop.server.restart();
    for runner in [&read, &write] {
        call(runner, json!({})).await.0.unwrap();
    }
    let result = call(&late, json!({})).await.0;
    assert!(
        matches!(&result, Err(ToolError::Upstream(UpstreamFailure { message, .. })) if message.contains("declare effect: write")),
        "{result:?}"
    );
    // The idle connections lead to the old server, and another one has replaced it.
    shop.server.stop();
    shop.server.restart();
    call(&read, json!({})).await.0.unwrap();
    call(&write, json!({})).await.0.unwrap();
}

#[tokio::test]
async fn start_waits_once_for_a_silent_server() {
    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@{}/x", silent.local_addr().unwrap());
    let databases = Databases::default();
    let started = Instant::now();
    for statement in ["select 1 as x", "select 2 as x", "select 3 as x"] {
        let config = json!({"database": url, "statement": statement});
        let (_, warnings) = build_runner(Path::new("/"), config, Effect::Read, &databases).unwrap();
        assert!(
            warnings[0]
                .message
                .contains("/x: no connection within 2 seconds; calls fail until"),
            "{warnings:?}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn failed_logins_are_reported_without_the_password() {
    let Some(shop) = Shop::new("locked_out").await else {
        return;
    };
    shop.run("create role locked login password 'the-right-one'")
        .await;
    let url = |user: &str, database: &str, more: &str| {
        format!(
            "postgres://{user}@127.0.0.1:{}/{database}{more}",
            shop.server.port
        )
    };
    for (url, want) in [
        (
            url("locked:hunter2-wrong", "locked_out", ""),
            "password authentication failed for user \"locked\"",
        ),
        (
            url("postgres", "nowhere", ""),
            "database \"nowhere\" does not exist",
        ),
        (url("postgres", "locked_out", "?sslmode=require"), "no TLS"),
    ] {
        let config = json!({"database": url, "statement": "select 1 as x"});
        let (runner, warnings) =
            build_runner(Path::new("/"), config, Effect::Read, &Databases::default()).unwrap();
        assert!(warnings[0].message.contains(want), "{warnings:?}");
        let result = call(&runner, json!({})).await.0;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable: false,
            ..
        })) = result
        else {
            panic!("{url}: {result:?}")
        };
        assert!(
            message.contains(want) && !message.contains("hunter2"),
            "{message}"
        );
    }
    let config = json!({"database": url("locked:the-right-one", "locked_out", ""), "statement": "select name from customers"});
    let (runner, warnings) =
        build_runner(Path::new("/"), config, Effect::Read, &Databases::default()).unwrap();
    assert!(
        warnings[0]
            .message
            .contains("permission denied for table customers"),
        "{warnings:?}"
    );
    shop.run("grant select on customers to locked").await;
    assert_eq!(
        result_data(call(&runner, json!({})).await.0)
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn connection_state_is_reset_between_calls() {
    let Some(shop) = Shop::new("state").await else {
        return;
    };
    shop.run(
        "create role other; grant all on all tables in schema public to other; create sequence counter;
         create function leave(name text) returns text language plpgsql as $$ begin
           perform set_config('app.user', name, false);
           perform set_config('default_transaction_read_only', 'off', false);
           perform pg_advisory_lock(7);
           return name; end $$;
         create function leave_more(name text) returns text language plpgsql as $$ begin
           perform leave(name);
           create temp table notes as select name;
           perform nextval('counter');
           execute 'listen gossip';
           execute 'declare held cursor with hold for select 1';
           execute 'set role other';
           execute 'set search_path = pg_temp';
           return name; end $$",
    )
    .await;
    let look = "select current_setting('app.user', true) as u, current_user::text as who, \
                current_setting('search_path') as path, current_setting('default_transaction_read_only') as ro, \
                current_setting('client_min_messages') as notices, \
                (select count(*) from pg_locks where locktype = 'advisory' \
                and database = (select oid from pg_database where datname = current_database())) as locks, \
                (select count(*) from pg_class where relname = 'notes') as tables, \
                (select count(*) from pg_cursors where is_holdable) as cursors, \
                (select count(*) from pg_listening_channels()) as channels, pg_backend_pid() as pid";
    let looks = shop.tool(look, Effect::Read);
    let clean = result_data(call(&looks, json!({})).await.0);
    assert_eq!(
        (&clean[0]["who"], &clean[0]["ro"]),
        (&json!("postgres"), &json!("on"))
    );
    assert_eq!(clean[0]["notices"], "error");
    let fails = "select leave_more(:name) as x, 1 / :n as y";
    for (statement, effect) in [
        ("select leave(:name) as x", Effect::Read),
        ("select leave_more(:name) as x", Effect::Write),
        (fails, Effect::Write),
        ("select leave(:name) as x, 1 / :n as y", Effect::Read),
    ] {
        let result = call(
            &shop.tool(statement, effect),
            json!({"name": "alice-secret", "n": 0}),
        )
        .await
        .0;
        assert_eq!(result.is_ok(), !statement.contains('/'), "{result:?}");
        let mut seen = result_data(call(&looks, json!({})).await.0);
        // A setting that was set once is empty afterwards, not absent.
        if seen[0]["u"] == "" {
            seen[0]["u"] = Value::Null;
        }
        assert_eq!(seen, clean, "{statement}: on the same connection");
    }
    let last = shop.tool("select lastval() as n", Effect::Write);
    let result = call(&last, json!({})).await.0;
    assert!(
        matches!(&result, Err(error) if error.to_string().contains("lastval is not yet defined")),
        "{result:?}"
    );
    assert_eq!(
        shop.query_number(
            "select count(*) from pg_locks where locktype = 'advisory' \
             and database = (select oid from pg_database where datname = current_database())"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn statements_stay_prepared_after_a_write() {
    let Some(shop) = Shop::new("stay_prepared").await else {
        return;
    };
    let prepared = shop.tool(
        "select count(*) as n, pg_backend_pid() as p from pg_prepared_statements",
        Effect::Read,
    );
    let write = shop.tool("update customers set year = :n", Effect::Write);
    let once = |answer: Value| answer[0].clone();
    call(&write, json!({"n": 1})).await.0.unwrap();
    call(&prepared, json!({})).await.0.unwrap();
    let before = once(result_data(call(&prepared, json!({})).await.0));
    for n in 2..6 {
        assert_eq!(
            result_data(call(&write, json!({"n": n})).await.0),
            json!({"rows_affected": 3})
        );
    }
    assert_eq!(
        once(result_data(call(&prepared, json!({})).await.0)),
        before
    );
}
