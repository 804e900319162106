//! Tests with a real PostgreSQL that the tests start themselves. Without an installed PostgreSQL
//! they report that they were skipped.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::call::{
    Effect, JsonObject, ToolContext, ToolError, ToolResult, ToolSettings, UpstreamFailure,
};
use crate::kinds::sql::tests::{
    BuildOutcome, TEST_TIMEOUT, build_runner, call, first_message, invocation, object, result_data,
};
use crate::kinds::{Databases, Runner};
use crate::ledger::test_server::TestServer;

#[path = "connections_tests.rs"]
mod connections;
#[path = "types_tests.rs"]
mod types;

/// The database of one test.
struct Shop {
    server: Arc<TestServer>,
    name: String,
    databases: Databases,
}

impl Shop {
    async fn new(name: &str) -> Option<Self> {
        let server = TestServer::shared()?;
        Some(Self::on_server(server, name).await)
    }

    async fn on_server(server: Arc<TestServer>, name: &str) -> Self {
        let shop = Self {
            server,
            name: name.to_owned(),
            databases: Databases::default(),
        };
        shop.server.create_database(name).await;
        shop.run(
            "create table customers (id int primary key generated always as identity, name text not null unique, \
             revenue numeric(12,2), year int, since timestamptz default '2024-01-02 03:04:05+01');
             insert into customers (name, revenue, year) values ('Ann', 12.5, 2024), ('Bo', 99999.99, 2024), ('Cy', null, 2025)",
        )
        .await;
        shop
    }

    fn url(&self) -> String {
        self.server.url(&self.name)
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    async fn run(&self, script: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(script.to_owned()))
            .execute(&mut self.connect().await)
            .await
            .unwrap();
    }

    async fn query_number(&self, question: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(question.to_owned()))
            .fetch_one(&mut self.connect().await)
            .await
            .unwrap()
    }

    fn build_tool(&self, statement: &str, effect: Effect, more: Value) -> BuildOutcome {
        let mut config = json!({"database": self.url(), "statement": statement});
        config
            .as_object_mut()
            .unwrap()
            .extend((*object(more)).clone());
        build_runner(Path::new("/"), config, effect, &self.databases)
    }

    fn tool(&self, statement: &str, effect: Effect) -> Arc<dyn Runner> {
        let (runner, warnings) = self
            .build_tool(statement, effect, json!({}))
            .unwrap_or_else(|faults| panic!("{faults:?}"));
        assert_eq!(warnings, [], "{statement}");
        runner
    }

    async fn run_read(&self, statement: &str, arguments: Value) -> Result<ToolResult, ToolError> {
        call(&self.tool(statement, Effect::Read), arguments).await.0
    }
}

fn single_violation(result: Result<ToolResult, ToolError>) -> (String, String) {
    match result {
        Err(ToolError::InvalidArguments(mut violations)) => {
            assert_eq!(violations.len(), 1, "{violations:?}");
            let violation = violations.remove(0);
            (violation.pointer, violation.message)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn database_enforces_read_only_tools() {
    let Some(shop) = Shop::new("reading").await else {
        return;
    };
    shop.run("create function sneak() returns int language plpgsql as 'begin delete from customers; return 1; end'")
        .await;
    for statement in [
        "insert into customers (name) values ('X')",
        "/* select */ with d as (delete from customers returning id) select * from d",
        "update customers set year = :n",
        "select * from customers for update",
    ] {
        let finding = first_message(shop.build_tool(statement, Effect::Read, json!({})));
        assert!(
            finding.contains("declare effect: write"),
            "{statement}: {finding}"
        );
    }
    // Statements whose change shows only when they run.
    for statement in [
        "create table t (x int)",
        "select sneak() as x",
        "truncate customers",
        "select 1 as x into t",
    ] {
        let result = shop.run_read(statement, json!({})).await;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable: false,
            not_delivered: true,
            ..
        })) = result
        else {
            panic!("{result:?}")
        };
        assert!(message.contains("declare effect: write"), "{message}");
    }
    assert_eq!(shop.query_number("select count(*) from customers").await, 3);
    assert_eq!(
        result_data(shop.run_read("show server_encoding", json!({})).await),
        json!([{"server_encoding": "UTF8"}])
    );
    let plan = result_data(
        shop.run_read("explain (format json) select 1", json!({}))
            .await,
    );
    assert!(plan[0]["QUERY PLAN"].is_array(), "{plan}");
    assert_eq!(
        result_data(
            call(&shop.tool("select sneak() as x", Effect::Write), json!({}))
                .await
                .0
        ),
        json!([{"x": 1}])
    );
    assert_eq!(shop.query_number("select count(*) from customers").await, 0);
}

#[tokio::test]
async fn write_is_committed_completely_or_not() {
    let Some(shop) = Shop::new("writing").await else {
        return;
    };
    let rename = shop.tool(
        "update customers set year = :n where year = 2024",
        Effect::Write,
    );
    assert_eq!(
        result_data(call(&rename, json!({"n": 1999})).await.0),
        json!({"rows_affected": 2})
    );
    let insert = "insert into customers (name) select unnest(:ids::text[]) returning id, name, '(1,2)'::point as at";
    let (insert, _) = shop
        .build_tool(insert, Effect::Write, json!({"max_rows": 1}))
        .unwrap();
    let (inserted, warnings) = call(&insert, json!({"ids": ["Di", "Ed"]})).await;
    assert_eq!(
        result_data(inserted),
        json!([{"id": 4, "name": "Di", "at": "(1,2)"}]),
        "its types are text that the database made"
    );
    assert!(warnings[0].contains("ran to its end"), "{warnings:?}");
    assert_eq!(
        shop.query_number("select count(*) from customers").await,
        5,
        "both are in"
    );
    let (failed, _) = call(&insert, json!({"ids": ["Fi", "Ann"]})).await;
    let Err(ToolError::ErrorResult(message)) = failed else {
        panic!("{failed:?}")
    };
    assert!(
        message.contains("duplicate key value")
            && message.contains("Key (name)=(Ann) already exists."),
        "{message}"
    );
    assert_eq!(
        shop.query_number("select count(*) from customers").await,
        5,
        "neither is in"
    );
    shop.run("alter table customers add constraint late unique (year, name) deferrable initially deferred").await;
    shop.run("alter table customers drop constraint customers_name_key")
        .await;
    let duplicate = shop.tool(
        "insert into customers (name, year) values ('Jo', 1), ('Jo', 1)",
        Effect::Write,
    );
    let result = call(&duplicate, json!({})).await.0;
    assert!(
        matches!(&result, Err(ToolError::ErrorResult(text)) if text.contains("late")),
        "refused by the commit: {result:?}"
    );
    assert_eq!(shop.query_number("select count(*) from customers").await, 5);
    // A change at the top of a `with` cannot be inside another statement, but it can be an earlier
    // part of the same `with`.
    let moved = "with d as (delete from customers where year = 1999 returning id) select count(*) as n from d";
    assert_eq!(
        result_data(call(&shop.tool(moved, Effect::Write), json!({})).await.0),
        json!([{"n": 2}])
    );
    let foreign =
        "with d as (delete from customers returning id) select point(id, id) as at from d";
    assert_eq!(
        result_data(call(&shop.tool(foreign, Effect::Write), json!({})).await.0)[0],
        json!({"at": "(3,3)"})
    );
}

#[tokio::test]
async fn statement_faults_are_reported_at_start() {
    let Some(shop) = Shop::new("at_the_start").await else {
        return;
    };
    for (statement, want) in [
        ("select from where", "syntax error at or near \"where\""),
        ("select 1, 2", "two columns have the name `?column?`"),
        (
            "select * from custmers",
            "warning: relation \"custmers\" does not exist; calls fail until this is corrected",
        ),
        (
            "select nme from customers",
            "warning: column \"nme\" does not exist",
        ),
        ("select 1 as x where :a is null", "warning: none"),
        ("select $1", "a parameter is written :name"),
        (
            "select '{}'::int4multirange as x",
            "a type that is not supported (a multirange?)",
        ),
    ] {
        let finding = first_message(shop.build_tool(statement, Effect::Read, json!({})));
        assert!(finding.contains(want), "{statement}: {finding}");
    }
}

#[tokio::test]
async fn long_result_is_cut_and_connection_reused() {
    let Some(shop) = Shop::new("long_answers").await else {
        return;
    };
    let numbers = "select generate_series(1, :n) as x, pg_backend_pid() as pid";
    let (runner, _) = shop
        .build_tool(numbers, Effect::Read, json!({"max_rows": 2}))
        .unwrap();
    let pid = |answer: &Value| answer[0]["pid"].as_i64();
    let (complete, warnings) = call(&runner, json!({"n": 2})).await;
    let complete = result_data(complete);
    assert_eq!(warnings, [""; 0]);
    let (cut, warnings) = call(&runner, json!({"n": 100})).await;
    let cut = result_data(cut);
    assert_eq!(
        (cut.as_array().unwrap().len(), pid(&cut)),
        (2, pid(&complete)),
        "the rest is read quickly"
    );
    assert!(
        warnings[0]
            .starts_with("there are more than 2 rows (max_rows): the first 2 are shown. Ask for"),
        "{warnings:?}"
    );
    let started = Instant::now();
    let (cut, _) = call(&runner, json!({"n": 2_000_000_000})).await;
    assert_eq!(result_data(cut).as_array().unwrap().len(), 2);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the other rows are not read"
    );
    shop.wait_until_idle("generate_series").await;
    assert_eq!(
        result_data(call(&runner, json!({"n": 1})).await.0)[0]["x"],
        1
    );
    let (runner, _) = shop
        .build_tool(
            "select repeat('x', :n) as x from generate_series(1, 3)",
            Effect::Read,
            json!({"max_output": "1KiB"}),
        )
        .unwrap();
    let (cut, warnings) = call(&runner, json!({"n": 400})).await;
    assert_eq!(result_data(cut).as_array().unwrap().len(), 2);
    assert!(
        warnings[0].starts_with("the rows are longer than 1024 bytes (max_output): the first 2"),
        "{warnings:?}"
    );
}

impl Shop {
    /// Waits until the database runs no statement that contains `word`.
    async fn wait_until_idle(&self, word: &str) {
        let running = format!(
            "select count(*) from pg_stat_activity where datname = '{}' and state <> 'idle' and pid <> pg_backend_pid() \
             and position('{word}' in query) > 0",
            self.name
        );
        let end = Instant::now() + TEST_TIMEOUT;
        while self.query_number(&running).await > 0 {
            assert!(Instant::now() < end, "{word} still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn dropped_call_stops_its_statement() {
    let Some(shop) = Shop::new("dropped").await else {
        return;
    };
    for (statement, effect) in [
        ("select pg_sleep(600)", Effect::Read),
        (
            "select count(*) as n from generate_series(1, 100000000000)",
            Effect::Read,
        ),
        (
            "with d as (delete from customers returning id) select pg_sleep(600), id from d",
            Effect::Write,
        ),
    ] {
        let runner = shop.tool(statement, effect);
        let started = Instant::now();
        let dropped =
            tokio::time::timeout(Duration::from_millis(300), call(&runner, json!({}))).await;
        assert!(dropped.is_err(), "{statement} came to an end");
        shop.wait_until_idle("pg_sleep").await;
        shop.wait_until_idle("generate_series").await;
        assert!(started.elapsed() < Duration::from_secs(10), "{statement}");
    }
    assert_eq!(
        shop.query_number("select count(*) from customers").await,
        3,
        "rolled back"
    );
}

#[tokio::test]
async fn changed_table_is_described_again() {
    let Some(shop) = Shop::new("changes").await else {
        return;
    };
    let all = shop.tool("select * from customers order by id limit 1", Effect::Read);
    assert!(
        result_data(call(&all, json!({})).await.0)[0]
            .get("extra")
            .is_none()
    );
    shop.run("alter table customers add column extra text default 'e'")
        .await;
    assert_eq!(result_data(call(&all, json!({})).await.0)[0]["extra"], "e");
    shop.run("alter table customers alter column year type text")
        .await;
    assert_eq!(
        result_data(call(&all, json!({})).await.0)[0]["year"],
        "2024"
    );
    shop.run("drop table customers").await;
    let result = call(&all, json!({})).await.0;
    assert!(
        matches!(
            &result,
            Err(ToolError::Upstream(UpstreamFailure {
                retryable: false,
                ..
            }))
        ),
        "{result:?}"
    );
    shop.run("create table customers (id text); insert into customers values ('back')")
        .await;
    assert_eq!(
        result_data(call(&all, json!({})).await.0),
        json!([{"id": "back"}])
    );
}

#[tokio::test]
async fn database_errors_are_error_results() {
    let Some(shop) = Shop::new("refuses").await else {
        return;
    };
    let result = shop.run_read("select 1 / :n as x", json!({"n": 0})).await;
    assert!(
        matches!(&result, Err(ToolError::ErrorResult(text)) if text == "the database reports an error: division by zero"),
        "{result:?}"
    );
    shop.run("create function no() returns int language plpgsql as 'begin raise exception ''too much: %'', 5; end'")
        .await;
    let result = shop.run_read("select no() as x", json!({})).await;
    assert!(
        matches!(&result, Err(ToolError::ErrorResult(text)) if text.contains("too much: 5")),
        "{result:?}"
    );
    let empty: JsonObject = JsonObject::new();
    assert_eq!(
        result_data(
            shop.run_read("select id from customers where false", Value::Object(empty))
                .await
        ),
        json!([])
    );
}

#[tokio::test]
async fn long_row_is_refused_by_the_server() {
    let Some(shop) = Shop::new("long_rows").await else {
        return;
    };
    shop.run(
        "create domain word as text; create type pair as (a int, b text); create table docs (id int, doc jsonb, word word);
         insert into docs select 1, to_jsonb(repeat('x', 10000000)), repeat('w', 10000000)",
    )
    .await;
    for column in [
        "repeat('x', 9000000 * :n::int)",
        "repeat('x', 9000000)::word",
        "convert_to(repeat('x', 9000000), 'UTF8')",
        "to_json(repeat('x', 9000000))",
        "to_jsonb(repeat('x', 9000000))",
        "array_fill(7, array[3000000])",
        "array_fill(point(1, 2), array[300000])",
        "(1, repeat('x', 9000000))::pair",
        "(select doc from docs)",
        "(select word from docs)",
        "(select string_agg(repeat('x', 1000), '') from generate_series(1, 9000))",
    ] {
        for (statement, effect) in [
            (
                format!("select 1 as id, {column} as c, :n::int as n"),
                Effect::Read,
            ),
            (
                format!(
                    "insert into customers (name) values ('X') returning id, {column} as c, :n::int as n"
                ),
                Effect::Write,
            ),
            (
                format!(
                    "with d as (delete from customers returning id) select id, {column} as c, :n::int as n from d"
                ),
                Effect::Write,
            ),
        ] {
            let result = call(&shop.tool(&statement, effect), json!({"n": 1}))
                .await
                .0;
            let message = match (&result, effect) {
                (Err(ToolError::BadOutput(message)), Effect::Read) => message,
                (
                    Err(ToolError::Upstream(UpstreamFailure {
                        message,
                        not_delivered: true,
                        retryable: false,
                        unavailable: false,
                        ..
                    })),
                    _,
                ) => message,
                _ => panic!("{statement}: {result:?}"),
            };
            assert!(
                message.contains("longer than 1048576 bytes in the database"),
                "{statement}: {message}"
            );
            assert!(
                message.contains("its longest column, `c`, has "),
                "{statement}: {message}"
            );
        }
    }
    assert_eq!(
        shop.query_number("select count(*) from customers").await,
        3,
        "nothing was changed"
    );
    let two = "select repeat('x', 600000) as a, repeat('y', 700000) as b";
    let result = shop.run_read(two, json!({})).await;
    assert!(
        matches!(&result, Err(ToolError::BadOutput(message)) if message.contains("`b`, has 700000 bytes")),
        "{result:?}"
    );
    let grows = "select x, repeat('x', x) as y from generate_series(1, 90000000, 30000000) as t (x) order by x";
    let (cut, warnings) = call(&shop.tool(grows, Effect::Read), json!({})).await;
    assert_eq!(
        result_data(cut),
        json!([{"x": 1, "y": "x"}]),
        "what stands before it is shown"
    );
    assert!(
        warnings[0].starts_with("the rows are longer than 262144 bytes (max_output): the first 1"),
        "{warnings:?}"
    );
    let result = shop
        .run_read("select 1 as id, repeat('x', 300000) as y", json!({}))
        .await;
    assert!(
        matches!(&result, Err(ToolError::BadOutput(message)) if message.contains("`y`, has 300002 bytes")),
        "{result:?}"
    );
    let more = json!({"max_output": "4MiB"});
    let (more, _) = shop
        .build_tool(
            "select array_fill(7::int8, array[1000000]) as x",
            Effect::Read,
            more,
        )
        .unwrap();
    assert_eq!(
        result_data(call(&more, json!({})).await.0)[0]["x"]
            .as_array()
            .unwrap()
            .len(),
        1_000_000
    );
}

#[tokio::test]
async fn read_is_rolled_back() {
    let Some(shop) = Shop::new("leaves_nothing").await else {
        return;
    };
    let large = shop.tool("select lo_creat(-1)::int as o", Effect::Read);
    assert!(result_data(call(&large, json!({})).await.0)[0]["o"].as_i64() > Some(0));
    let left = "select count(*) from pg_largeobject_metadata";
    let end = Instant::now() + TEST_TIMEOUT;
    // The rollback comes after the answer.
    result_data(shop.run_read("select 1 as x", json!({})).await);
    while shop
        .query_number("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'")
        .await
        > 0
    {
        assert!(Instant::now() < end);
    }
    assert_eq!(shop.query_number(left).await, 0);
}
