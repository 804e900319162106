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
async fn every_type_converts_to_json() {
    let Some(shop) = Shop::new("every_type").await else {
        return;
    };
    shop.run(
        "create type mood as enum ('sad', 'happy'); create domain even as int check (value % 2 = 0);
         create type pair as (a int, b text)",
    )
    .await;
    for (expression, want) in [
        ("true", json!(true)),
        ("(-32768)::int2", json!(-32768)),
        ("2147483647", json!(2_147_483_647)),
        ("9223372036854775807", json!(i64::MAX)),
        ("(-9223372036854775808)::int8", json!(i64::MIN)),
        ("0.1::float4", json!(0.1)),
        ("16777217::float4", json!(16777216.0)),
        ("0.1::float8", json!(0.1)),
        ("'NaN'::float8", json!("NaN")),
        ("'-inf'::float4", json!("-Infinity")),
        ("12.50::numeric", json!("12.50")),
        ("0::numeric", json!("0")),
        ("-0.0001::numeric", json!("-0.0001")),
        ("10000::numeric", json!("10000")),
        ("100000000.00010::numeric", json!("100000000.00010")),
        (
            "123456789012345678901234567890.123456789::numeric",
            json!("123456789012345678901234567890.123456789"),
        ),
        ("1e-20::numeric", json!("0.00000000000000000001")),
        ("'NaN'::numeric", json!("NaN")),
        ("'-Infinity'::numeric", json!("-Infinity")),
        ("sum(x) from (values (1::int8), (2)) v (x)", json!("3")),
        ("'ü'::text", json!("ü")),
        ("''::varchar", json!("")),
        ("'ab'::char(4)", json!("ab  ")),
        ("'x'::\"char\"", json!("x")),
        ("'n'::name", json!("n")),
        ("'\\x00ff'::bytea", json!("AP8=")),
        (
            "'{\"a\": [1, 9223372036854775807, null]}'::json",
            json!({"a": [1, i64::MAX, null]}),
        ),
        ("'{\"a\": 1.50}'::jsonb", json!({"a": 1.5})),
        ("'\"text\"'::jsonb", json!("text")),
        ("'null'::jsonb", json!(null)),
        (
            "'[12345678901234567890123]'::jsonb",
            json!("[12345678901234567890123]"),
        ),
        (
            "'{\"a\": 1, \"a\": 2}'::json",
            json!("{\"a\": 1, \"a\": 2}"),
        ),
        (
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("'2024-02-29'::date", json!("2024-02-29")),
        ("'infinity'::date", json!("infinity")),
        ("'0044-03-15 BC'::date", json!("0044-03-15 BC")),
        ("'294276-12-31'::timestamp", json!("294276-12-31T00:00:00")),
        (
            "'2024-02-29 12:34:56.789'::timestamp",
            json!("2024-02-29T12:34:56.789"),
        ),
        (
            "'2024-02-29 12:34:56+02'::timestamptz",
            json!("2024-02-29T10:34:56Z"),
        ),
        ("'-infinity'::timestamptz", json!("-infinity")),
        ("'12:34:56.5'::time", json!("12:34:56.5")),
        ("'24:00'::time", json!("24:00:00")),
        ("'12:34:56+05:30'::timetz", json!("12:34:56+05:30")),
        (
            "'1 year 2 mons -3 days 04:05:06.7'::interval",
            json!("P1Y2M-3DT4H5M6.7S"),
        ),
        ("'0'::interval", json!("PT0S")),
        ("'192.168.0.1/24'::inet", json!("192.168.0.1/24")),
        ("'10.0.0.0/8'::cidr", json!("10.0.0.0/8")),
        ("'10.0.0.1/32'::cidr", json!("10.0.0.1/32")),
        ("'10.0.0.1'::inet", json!("10.0.0.1")),
        ("'2001:db8::1/64'::inet", json!("2001:db8::1/64")),
        ("array['::ffff:1.2.3.4'::inet]", json!(["::ffff:1.2.3.4"])),
        ("'08:00:2b:01:02:03'::macaddr", json!("08:00:2b:01:02:03")),
        ("'happy'::mood", json!("happy")),
        ("2::even", json!(2)),
        ("(1, 'x y')::pair", json!("(1,\"x y\")")),
        ("row(1, null)", json!("(1,)")),
        ("'[1,5)'::int4range", json!("[1,5)")),
        (
            "'{[1,2),[5,7)}'::int4multirange::text",
            json!("{[1,2),[5,7)}"),
        ),
        ("'(1,2)'::point", json!("(1,2)")),
        ("B'101'", json!("101")),
        ("12.3::money", json!("$12.30")),
        ("'a & b'::tsquery", json!("'a' & 'b'")),
        ("'customers'::regclass", json!("customers")),
        ("26::oid", json!(26)),
        ("'<a/>'::xml", json!("<a/>")),
        ("null::int", json!(null)),
        ("null::point", json!(null)),
        ("array[1, null, 3]", json!([1, null, 3])),
        ("'{}'::text[]", json!([])),
        ("'{{1,2},{3,4}}'::int8[]", json!([[1, 2], [3, 4]])),
        ("'[2:3]={7,8}'::int[]", json!([7, 8])),
        (
            "array['2024-01-01'::date, null]",
            json!(["2024-01-01", null]),
        ),
        ("array['{\"a\":1}'::jsonb]", json!([{"a": 1}])),
        ("array[1.10::numeric]", json!(["1.10"])),
        ("array['sad'::mood]", json!(["sad"])),
        ("array['(1,2)'::point, null]", json!(["(1,2)", null])),
        ("array[(1, 'x')::pair]", json!(["(1,x)"])),
        ("pg_sleep(0)", json!(null)),
    ] {
        let (head, tail) = expression.split_once(" from ").unwrap_or((expression, ""));
        let from = if tail.is_empty() {
            String::new()
        } else {
            format!(" from {tail}")
        };
        let statement = format!("select {head} as v{from}");
        assert_eq!(
            result_data(shop.run_read(&statement, json!({})).await),
            json!([{"v": want}]),
            "{expression}"
        );
    }
    let (_, warnings) = call(
        &shop.tool("select '[1e400]'::jsonb as v, 1 as w", Effect::Read),
        json!({}),
    )
    .await;
    assert!(
        warnings[0].starts_with("column `v` holds JSON that has no exact form here"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn arguments_convert_to_parameter_types() {
    let Some(shop) = Shop::new("arguments").await else {
        return;
    };
    shop.run("create type mood as enum ('sad', 'happy'); create schema \"Odd\"; create domain \"Odd\".even as int check (value % 2 = 0)")
        .await;
    for (kind, argument, want) in [
        ("int2", json!(-5), json!(-5)),
        ("int4", json!(2.0), json!(2)),
        ("int8", json!(i64::MAX), json!(i64::MAX)),
        ("int8", json!("7"), json!(7)),
        ("numeric", json!(0.1), json!("0.1")),
        (
            "numeric",
            json!("12345678901234567890.10"),
            json!("12345678901234567890.10"),
        ),
        ("float8", json!(1), json!(1.0)),
        ("float8", json!("NaN"), json!("NaN")),
        (
            "text",
            json!("x' or 1=1; drop table customers --"),
            json!("x' or 1=1; drop table customers --"),
        ),
        ("text", json!(5), json!("5")),
        ("text", json!("\\x41 $1 :a"), json!("\\x41 $1 :a")),
        ("bool", json!(true), json!(true)),
        ("date", json!("2024-02-29"), json!("2024-02-29")),
        (
            "timestamptz",
            json!("2024-02-29T12:00:00+02:00"),
            json!("2024-02-29T10:00:00Z"),
        ),
        (
            "timestamptz",
            json!("2024-02-29T12:00:00"),
            json!("2024-02-29T12:00:00Z"),
        ),
        ("interval", json!("P1DT2H"), json!("P1DT2H")),
        (
            "uuid",
            json!("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("jsonb", json!({"k": [1, null]}), json!({"k": [1, null]})),
        ("jsonb", json!("text"), json!("text")),
        ("json", json!([1]), json!([1])),
        ("bytea", json!("AP8="), json!("AP8=")),
        ("inet", json!("10.0.0.1"), json!("10.0.0.1")),
        ("mood", json!("happy"), json!("happy")),
        ("\"Odd\".even", json!(4), json!(4)),
        ("int4range", json!("[1,3)"), json!("[1,3)")),
        ("int[]", json!([1, null, 3]), json!([1, null, 3])),
        (
            "text[]",
            json!(["a,b", "\"", "NULL", "{}", "\\", null]),
            json!(["a,b", "\"", "NULL", "{}", "\\", null]),
        ),
        ("int[]", json!([[1, 2], [3, 4]]), json!([[1, 2], [3, 4]])),
        ("jsonb[]", json!([{"a": 1}, [2]]), json!([{"a": 1}, [2]])),
        ("mood[]", json!(["sad"]), json!(["sad"])),
        ("int", json!(null), json!(null)),
    ] {
        let statement = format!("select :a::{kind} as v");
        assert_eq!(
            result_data(shop.run_read(&statement, json!({"a": argument})).await),
            json!([{"v": want}]),
            "{kind} {argument}"
        );
    }
    let some = "select name from customers where id = any(:ids) and (:name is null or name = :name) order by id";
    assert_eq!(
        result_data(shop.run_read(some, json!({"ids": [1, 3]})).await),
        json!([{"name": "Ann"}, {"name": "Cy"}])
    );
    assert_eq!(
        result_data(
            shop.run_read(some, json!({"ids": [1, 3], "name": "Cy"}))
                .await
        ),
        json!([{"name": "Cy"}])
    );
    let grouped = "select date_trunc(:a, since) as since, count(*) as n from customers group by date_trunc(:a, since)";
    let answer = shop.run_read(grouped, json!({"a": "year"})).await;
    assert_eq!(
        result_data(answer),
        json!([{"since": "2024-01-01T00:00:00Z", "n": 3}]),
        "both are the same"
    );
    let both = "select :doc::jsonb as j, :doc::text as t, :n is null as missing, :ids is null or 3 = any(:ids) as listed";
    let answer = shop.run_read(both, json!({"doc": "x", "ids": [3]})).await;
    assert_eq!(
        result_data(answer),
        json!([{"j": "x", "t": "x", "missing": true, "listed": true}])
    );
    let typed = "select id from customers where revenue > :a and since < :b and year = :n limit :n";
    let answer = shop
        .run_read(
            typed,
            json!({"a": "99999.98", "b": "2025-01-01", "n": 2024}),
        )
        .await;
    assert_eq!(result_data(answer), json!([{"id": 2}]));

    for (kind, argument, want) in [
        ("int2", json!(40000), "out of range"),
        (
            "int4",
            json!(2.5),
            "invalid input syntax for type integer: \"2.5\"",
        ),
        ("int4", json!("abc"), "invalid input syntax"),
        (
            "date",
            json!("2024-02-30"),
            "date/time field value out of range",
        ),
        ("uuid", json!("no"), "invalid input syntax for type uuid"),
        ("mood", json!("angry"), "invalid input value for enum mood"),
        ("\"Odd\".even", json!(3), "violates check constraint"),
        (
            "bytea",
            json!("no base64!"),
            "base64 is expected here: the statement expects bytea",
        ),
        (
            "int[]",
            json!(5),
            "a list is expected here: the statement expects integer[]",
        ),
        ("int[]", json!([1, "x"]), "invalid input syntax"),
        ("int", json!([1]), "one value is expected here"),
        ("text", json!("a\0b"), "cannot contain NUL"),
        ("jsonb", json!("a\0b"), "unsupported Unicode escape"),
    ] {
        let statement = format!("select :b::int as b, :a::{kind} as v");
        let (pointer, message) = single_violation(
            shop.run_read(&statement, json!({"a": argument, "b": 1}))
                .await,
        );
        assert_eq!(pointer, "/a", "{kind}");
        assert!(message.contains(want), "{kind} {argument}: {message}");
    }
    assert_eq!(shop.query_number("select count(*) from customers").await, 3);
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
async fn wrapping_does_not_change_the_result() {
    let Some(shop) = Shop::new("around").await else {
        return;
    };
    shop.run(
        "create sequence counted; create function counting(t text) returns text language sql volatile as
         $$ select t || nextval('counted') $$",
    )
    .await;
    let ordered = shop
        .run_read(
            "select name, year from customers order by year desc, name desc limit 2",
            json!({}),
        )
        .await;
    assert_eq!(
        result_data(ordered),
        json!([{"name": "Cy", "year": 2025}, {"name": "Bo", "year": 2024}])
    );
    let counted = shop.tool(
        "select counting(name) as v from customers order by id",
        Effect::Write,
    );
    assert_eq!(
        result_data(call(&counted, json!({})).await.0),
        json!([{"v": "Ann1"}, {"v": "Bo2"}, {"v": "Cy3"}]),
        "once each"
    );
    let inserted = "insert into customers (name) values (counting('Di')), (counting('Ed')) returning name, (id, name) as both";
    let inserted = result_data(call(&shop.tool(inserted, Effect::Write), json!({})).await.0);
    assert_eq!(
        inserted,
        json!([{"name": "Di4", "both": "(4,Di4)"}, {"name": "Ed5", "both": "(5,Ed5)"}])
    );
    for (statement, want) in [
        (
            "select 'a' as \"?column?\", 'b' as \"with \"\"quotes\"\"\"",
            json!([{"?column?": "a", "with \"quotes\"": "b"}]),
        ),
        ("values ('a')", json!([{"column1": "a"}])),
        (
            "with recursive w (x) as (select 'a' union all select x || 'a' from w where length(x) < 2) select x from w -- end",
            json!([{"x": "a"}, {"x": "aa"}]),
        ),
        (
            "select x from (select 'a' as x) as \"rows\" /* end */",
            json!([{"x": "a"}]),
        ),
        (
            "select null::text as x, null::jsonb as y, null::int[] as z",
            json!([{"x": null, "y": null, "z": null}]),
        ),
        ("table customers limit 0", json!([])),
    ] {
        assert_eq!(
            result_data(shop.run_read(statement, json!({})).await),
            want,
            "{statement}"
        );
    }
    let locked = "select name from customers where id = 1 for update";
    assert_eq!(
        result_data(call(&shop.tool(locked, Effect::Write), json!({})).await.0),
        json!([{"name": "Ann"}])
    );
    let texts = shop.tool("select * from customers where name = 'Ann'", Effect::Read);
    call(&texts, json!({})).await.0.unwrap();
    shop.run("alter table customers add column extra jsonb default '{\"e\": 1}'")
        .await;
    assert_eq!(
        result_data(call(&texts, json!({})).await.0)[0]["extra"],
        json!({"e": 1}),
        "described again"
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
