//! Tests statements on real databases. No test sleeps for a fixed time: each polls until its
//! condition is true.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::*;
use crate::call::{
    Caller, Effect, Invocation, JsonObject, ToolContext, ToolError, ToolName, ToolResult,
    ToolSettings, UpstreamFailure,
};
use crate::kinds::{BuildContext, ConfigFault, Runner};

#[path = "workers_tests.rs"]
mod workers;

/// How long a condition may take to become true.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A statement that would run for hours, and returns its row only at its end.
const ENDLESS_QUERY: &str = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 100000000000) \
                       select count(*) as n from n";

pub(super) fn invocation() -> Invocation {
    let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
    Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::now())
}

pub(super) fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => panic!("{other}"),
    }
}

/// A schema with every parameter that the statement names, each of any type.
fn schema(statement: &str) -> Value {
    let is_named = |name: &&str| {
        statement
            .match_indices(&format!(":{name}"))
            .any(|(at, found)| {
                let next = statement[at + found.len()..].chars().next();
                !statement[..at].ends_with(':')
                    && !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
            })
    };
    let names = ["a", "b", "ids", "name", "n", "doc"]
        .into_iter()
        .filter(is_named);
    json!({"properties": names.map(|name| (name.to_owned(), json!({}))).collect::<JsonObject>()})
}

pub(super) type BuildOutcome = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

pub(super) fn build_runner(
    base: &Path,
    config: Value,
    effect: Effect,
    databases: &Databases,
) -> BuildOutcome {
    let schema = schema(config["statement"].as_str().unwrap());
    let fields = ["tenant".to_owned(), "user-id".to_owned()];
    let context = BuildContext {
        name: "t",
        base_dir: base,
        input_schema: &schema,
        context_fields: &fields,
        effect,
        trusted: true,
    };
    build(serde_json::from_value(config).unwrap(), &context, databases)
}

pub(super) async fn call(
    runner: &Arc<dyn Runner>,
    arguments: Value,
) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let invocation = invocation();
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
    let result = runner.call(object(arguments), context).await;
    let warnings = invocation.report.tool.lock().warnings.clone();
    (result, warnings)
}

pub(super) fn result_data(result: Result<ToolResult, ToolError>) -> Value {
    let result = result.unwrap();
    assert!(!result.is_error, "{result:?}");
    let data = result.structured_content.unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&result.content[0].text_of()).unwrap(),
        data,
        "the text is the same"
    );
    data
}

trait TextOf {
    fn text_of(&self) -> String;
}

impl TextOf for crate::call::Content {
    fn text_of(&self) -> String {
        match self {
            Self::Text { text } => text.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A database in a temporary folder.
struct Shop {
    folder: TempDir,
    databases: Databases,
}

impl Shop {
    async fn new() -> Self {
        let shop = Self {
            folder: tempfile::tempdir().unwrap(),
            databases: Databases::default(),
        };
        let script = "create table customers (id integer primary key, name text not null unique, revenue, year integer);
            insert into customers values (1, 'Ann', 12.5, 2024), (2, 'Bo', 9007199254740993, 2024), (3, 'Cy', null, 2025);";
        sqlx::raw_sql(script)
            .execute(&mut shop.connect().await)
            .await
            .unwrap();
        shop
    }

    async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("shop.db"))
            .create_if_missing(true);
        options.connect().await.unwrap()
    }

    fn build_tool(&self, statement: &str, effect: Effect, more: Value) -> BuildOutcome {
        let mut config = json!({"database": "sqlite://shop.db", "statement": statement});
        config
            .as_object_mut()
            .unwrap()
            .extend((*object(more)).clone());
        build_runner(self.folder.path(), config, effect, &self.databases)
    }

    fn tool(&self, statement: &str, effect: Effect) -> Arc<dyn Runner> {
        self.build_tool(statement, effect, json!({}))
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .0
    }

    async fn run_read(&self, statement: &str, arguments: Value) -> Result<ToolResult, ToolError> {
        call(&self.tool(statement, Effect::Read), arguments).await.0
    }

    async fn count_customers(&self) -> i64 {
        sqlx::query_scalar("select count(*) from customers")
            .fetch_one(&mut self.connect().await)
            .await
            .unwrap()
    }
}

pub(super) fn first_message(built: BuildOutcome) -> String {
    match built {
        Ok((_, warnings)) => format!(
            "warning: {}",
            warnings.first().map_or("none", |one| &one.message)
        ),
        Err(faults) => faults.into_iter().next().unwrap().message,
    }
}

#[tokio::test]
async fn rows_are_objects_with_typed_values() {
    let shop = Shop::new().await;
    let rows = shop
        .run_read(
            "select * from customers where year = :n order by id",
            json!({"n": 2024}),
        )
        .await;
    assert_eq!(
        result_data(rows),
        json!([
            {"id": 1, "name": "Ann", "revenue": 12.5, "year": 2024},
            {"id": 2, "name": "Bo", "revenue": 9_007_199_254_740_993_i64, "year": 2024},
        ])
    );
    let all = "select 9223372036854775807 as most, -9223372036854775808 as least, 1e999 as above, -1e999 as below, 0.1 as \
               tenth, x'00ff' as bytes, 'ü' as text, '' as \"nothing\", null as missing, true as truth, '2024-01-02' as day, \
               cast(x'ff' as text) as broken";
    let (rows, warnings) = call(&shop.tool(all, Effect::Read), json!({})).await;
    assert_eq!(
        result_data(rows),
        json!([{"most": i64::MAX, "least": i64::MIN, "above": "Infinity", "below": "-Infinity", "tenth": 0.1,
            "bytes": "AP8=", "text": "ü", "nothing": "", "missing": null, "truth": 1, "day": "2024-01-02", "broken": "/w=="}])
    );
    assert!(
        warnings[0].contains("`broken` holds a text that is not UTF-8"),
        "{warnings:?}"
    );
    let mixed = shop
        .run_read(
            "select revenue as r, typeof(revenue) as t from customers order by id",
            json!({}),
        )
        .await;
    assert_eq!(
        result_data(mixed)[2],
        json!({"r": null, "t": "null"}),
        "by value, not by column"
    );
}

#[tokio::test]
async fn arguments_are_never_parsed_as_sql() {
    let shop = Shop::new().await;
    let statement = "select :a as a, typeof(:a) as t, :b as b";
    for (argument, want, kind) in [
        (
            json!("x' or 1=1; drop table customers --"),
            json!("x' or 1=1; drop table customers --"),
            "text",
        ),
        (json!(":b"), json!(":b"), "text"),
        (json!(i64::MAX), json!(i64::MAX), "integer"),
        (json!(0.1), json!(0.1), "real"),
        (json!(true), json!(1), "integer"),
        (json!(null), json!(null), "null"),
        (json!([1, "x"]), json!("[1,\"x\"]"), "text"),
        (json!({"k": 1}), json!("{\"k\":1}"), "text"),
        (json!("a\0b"), json!("a\0b"), "text"),
    ] {
        let result = shop.run_read(statement, json!({"a": argument})).await;
        assert_eq!(
            result_data(result),
            json!([{"a": want, "t": kind, "b": null}]),
            "an absent one is NULL"
        );
    }
    let listed =
        "select name from customers where id in (select value from json_each(:ids)) order by id";
    assert_eq!(
        result_data(shop.run_read(listed, json!({"ids": [1, 3]})).await),
        json!([{"name": "Ann"}, {"name": "Cy"}])
    );
    let Err(ToolError::InvalidArguments(faults)) =
        shop.run_read(statement, json!({"a": u64::MAX})).await
    else {
        panic!()
    };
    assert_eq!(faults[0].pointer, "/a");
    assert_eq!(shop.count_customers().await, 3);
}

#[tokio::test]
async fn long_results_are_cut_with_a_warning() {
    let shop = Shop::new().await;
    let numbers = "with recursive n(x) as (select 1 union all select x + 1 from n where x < :n) select x from n";
    let (runner, _) = shop
        .build_tool(numbers, Effect::Read, json!({"max_rows": 3}))
        .unwrap();
    let (exact, warnings) = call(&runner, json!({"n": 3})).await;
    assert_eq!(
        (result_data(exact).as_array().unwrap().len(), warnings.len()),
        (3, 0)
    );
    let began = Instant::now();
    // Many more rows than could be read in the time.
    let (cut, warnings) = call(&runner, json!({"n": 100_000_000_000_i64})).await;
    assert_eq!(result_data(cut), json!([{"x": 1}, {"x": 2}, {"x": 3}]));
    assert!(
        warnings[0]
            .starts_with("there are more than 3 rows (max_rows): the first 3 are shown. Ask for"),
        "{warnings:?}"
    );
    let (again, _) = call(&runner, json!({"n": 1})).await;
    assert_eq!(
        result_data(again),
        json!([{"x": 1}]),
        "the connection is in order"
    );
    assert!(began.elapsed() < TEST_TIMEOUT);

    let (runner, _) = shop
        .build_tool(numbers, Effect::Read, json!({"max_output": "20B"}))
        .unwrap();
    let (cut, warnings) = call(&runner, json!({"n": 50})).await;
    let cut = cut.unwrap();
    assert_eq!(cut.content[0].text_of(), r#"[{"x":1},{"x":2}]"#);
    assert!(
        warnings[0].starts_with("the rows are longer than 20 bytes (max_output)"),
        "{warnings:?}"
    );
    let (runner, _) = shop
        .build_tool("select :a as a", Effect::Read, json!({"max_output": "20B"}))
        .unwrap();
    let (none, _) = call(&runner, json!({"a": "x".repeat(30)})).await;
    assert!(
        matches!(&none, Err(ToolError::BadOutput(message)) if message.contains("first row alone")),
        "{none:?}"
    );
}

#[tokio::test]
async fn only_write_tools_change_the_database() {
    let shop = Shop::new().await;
    for statement in [
        "insert into customers values (9, 'X', 1, 1)",
        "/* select */ delete from customers",
        "with x as (select 1) update customers set year = 1 returning id",
        "create table t (x)",
        "analyze",
    ] {
        let finding = first_message(shop.build_tool(statement, Effect::Read, json!({})));
        assert!(
            finding.contains("declare effect: write"),
            "{statement}: {finding}"
        );
    }
    let later = tempfile::tempdir().unwrap();
    for statement in ["delete from customers returning id", "create table t (x)"] {
        let config = json!({"database": "sqlite://shop.db", "statement": statement});
        let (runner, warnings) =
            build_runner(later.path(), config, Effect::Read, &Databases::default()).unwrap();
        assert!(
            warnings[0].message.contains("there is no file "),
            "{warnings:?}"
        );
        std::fs::copy(
            shop.folder.path().join("shop.db"),
            later.path().join("shop.db"),
        )
        .unwrap();
        let (result, _) = call(&runner, json!({})).await;
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
        std::fs::remove_file(later.path().join("shop.db")).unwrap();
    }
    assert_eq!(shop.count_customers().await, 3);
}

#[tokio::test]
async fn write_is_committed_completely_or_not() {
    let shop = Shop::new().await;
    let rename = shop.tool(
        "update customers set year = :n where year = 2024",
        Effect::Write,
    );
    assert_eq!(
        result_data(call(&rename, json!({"n": 1999})).await.0),
        json!({"rows_affected": 2})
    );
    assert_eq!(
        result_data(call(&rename, json!({"n": 1})).await.0),
        json!({"rows_affected": 0})
    );
    let table = shop.tool("create table if not exists t (x)", Effect::Idempotent);
    assert_eq!(
        result_data(call(&table, json!({})).await.0),
        json!({"rows_affected": 0})
    );
    let insert =
        "insert into customers (name) select value from json_each(:ids) returning id, name";
    let (insert, _) = shop
        .build_tool(insert, Effect::Write, json!({"max_rows": 1}))
        .unwrap();
    let (inserted, warnings) = call(&insert, json!({"ids": ["Di", "Ed"]})).await;
    assert_eq!(result_data(inserted), json!([{"id": 4, "name": "Di"}]));
    assert!(warnings[0].contains("ran to its end"), "{warnings:?}");
    assert_eq!(shop.count_customers().await, 5, "both are in");
    let (failed, _) = call(&insert, json!({"ids": ["Fi", "Ann"]})).await;
    let Err(ToolError::ErrorResult(message)) = failed else {
        panic!("{failed:?}")
    };
    assert!(
        message.contains("UNIQUE constraint failed: customers.name"),
        "{message}"
    );
    assert_eq!(shop.count_customers().await, 5, "neither is in");
    // SQLite ends this transaction itself.
    let conflict = "insert or rollback into customers (name) values (:n)";
    let conflict = shop.tool(conflict, Effect::Write);
    for _ in 0..2 {
        let (failed, _) = call(&conflict, json!({"n": "Ann"})).await;
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("UNIQUE constraint failed"), "{message}");
    }
    assert_eq!(
        result_data(call(&insert, json!({"ids": ["Gu"]})).await.0)[0]["name"],
        "Gu"
    );
}

#[tokio::test]
async fn statement_faults_are_reported_at_start() {
    let shop = Shop::new().await;
    for (statement, want) in [
        (
            "select :nme, :name",
            "line 1, column 8 of the statement: the tool has no parameter `nme`, did you mean `:name`?",
        ),
        (
            "select :context.user-id",
            "line 1, column 8 of the statement: `:context.user`: a statement cannot name the context field `user-id`: \
             write it with `_` in place of `-`",
        ),
        ("select 1; select 2", "a second statement begins here"),
        ("", "the statement is empty"),
        ("select from", "syntax error"),
        (
            "select id, id from customers",
            "two columns have the name `id`",
        ),
        (
            "select * from custmers",
            "warning: no such table: custmers; calls fail until this is corrected",
        ),
        ("select nme from customers", "warning: no such column: nme"),
    ] {
        let finding = first_message(shop.build_tool(statement, Effect::Read, json!({})));
        assert!(finding.contains(want), "{statement}: {finding}");
    }
    let config = json!({"database": "sqlite://shop.db", "statement": "select 1 as x"});
    let schema = json!({"properties": {"year": {}}});
    let context = BuildContext {
        name: "t",
        base_dir: shop.folder.path(),
        input_schema: &schema,
        context_fields: &[],
        effect: Effect::Read,
        trusted: true,
    };
    let built = build(
        serde_json::from_value(config).unwrap(),
        &context,
        &Databases::default(),
    );
    assert_eq!(
        first_message(built),
        "warning: the parameter is not used: write `:year` in `statement`, or leave it out"
    );
    for (key, value, want) in [
        (
            "database",
            json!("mysql://x"),
            "write sqlite://FILE or postgres://",
        ),
        ("database", json!("sqlite://"), "names no file"),
        ("database", json!("sqlite://:memory:"), "in memory"),
        (
            "database",
            json!("sqlite://shop.db?mode=rwc"),
            "takes no options",
        ),
        ("max_rows", json!(0), "from 1 to"),
        ("max_output", json!("5MiB"), "from 1B to 4MiB"),
    ] {
        let finding =
            first_message(shop.build_tool("select 1 as x", Effect::Read, json!({key: value})));
        assert!(finding.contains(want), "{key}: {finding}");
    }
}

#[tokio::test]
async fn missing_file_is_never_created() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"database": "sqlite://late.db", "statement": "select 1 as x"});
    for effect in [Effect::Read, Effect::Write] {
        let (runner, warnings) =
            build_runner(folder.path(), config.clone(), effect, &Databases::default()).unwrap();
        assert!(
            warnings[0]
                .message
                .contains("late.db, and the service does not create it"),
            "{warnings:?}"
        );
        let (result, _) = call(&runner, json!({})).await;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            not_delivered: true,
            unavailable: true,
            ..
        })) = result
        else {
            panic!("{result:?}")
        };
        assert!(message.contains("there is no file "), "{message}");
        assert!(!folder.path().join("late.db").exists());
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("late.db"))
            .create_if_missing(true);
        sqlx::raw_sql("create table t (x)")
            .execute(&mut options.connect().await.unwrap())
            .await
            .unwrap();
        assert_eq!(
            result_data(call(&runner, json!({})).await.0),
            json!([{"x": 1}])
        );
        std::fs::remove_file(folder.path().join("late.db")).unwrap();
    }
    std::fs::write(
        folder.path().join("late.db"),
        "no database at all, but long enough to be looked at",
    )
    .unwrap();
    let (runner, warnings) =
        build_runner(folder.path(), config, Effect::Read, &Databases::default()).unwrap();
    assert!(
        warnings[0].message.contains("is not a SQLite database"),
        "{warnings:?}"
    );
    assert!(call(&runner, json!({})).await.0.is_err());
}

#[tokio::test]
async fn replaced_file_or_table_is_reopened() {
    let shop = Shop::new().await;
    let all = shop.tool("select * from customers order by id limit 1", Effect::Read);
    assert_eq!(result_data(call(&all, json!({})).await.0)[0]["name"], "Ann");
    let change = "alter table customers add column extra default 'e'";
    sqlx::raw_sql(change)
        .execute(&mut shop.connect().await)
        .await
        .unwrap();
    assert_eq!(
        result_data(call(&all, json!({})).await.0)[0]["extra"],
        "e",
        "another column"
    );
    let other = Shop::new().await;
    sqlx::raw_sql("update customers set name = 'Zoe' where id = 1")
        .execute(&mut other.connect().await)
        .await
        .unwrap();
    std::fs::rename(
        other.folder.path().join("shop.db"),
        shop.folder.path().join("shop.db"),
    )
    .unwrap();
    assert_eq!(
        result_data(call(&all, json!({})).await.0)[0]["name"],
        "Zoe",
        "another file"
    );
}

/// The number of connections of this process to the file.
fn open_connections(open: &str) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    files
        .filter(|file| {
            std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().contains(open))
        })
        .count()
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn dropped_call_stops_its_statement() {
    let shop = Shop::new().await;
    let file = shop
        .folder
        .path()
        .join("shop.db")
        .to_string_lossy()
        .into_owned();
    let delete = format!("delete from customers where id < ({ENDLESS_QUERY})");
    for (statement, effect) in [
        (ENDLESS_QUERY, Effect::Read),
        (delete.as_str(), Effect::Write),
    ] {
        let runner = shop.tool(statement, effect);
        let dropped =
            tokio::time::timeout(Duration::from_millis(300), call(&runner, json!({}))).await;
        assert!(dropped.is_err(), "{statement} came to an end");
        wait_until("the file is closed", || open_connections(&file) == 0).await;
    }
    assert_eq!(shop.count_customers().await, 3, "rolled back");
}

#[tokio::test]
async fn locked_database_is_awaited_until_the_deadline() {
    let shop = Shop::new().await;
    let (write, read) = (
        shop.tool("update customers set year = 1", Effect::Write),
        shop.tool("select count(*) as n from customers", Effect::Read),
    );
    let mut other = shop.connect().await;
    sqlx::raw_sql("begin exclusive")
        .execute(&mut other)
        .await
        .unwrap();
    for runner in [&write, &read] {
        let invocation = invocation();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(300);
        let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
        let result = runner.call(object(json!({})), context).await;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable: true,
            not_delivered: true,
            ..
        })) = result
        else {
            panic!("{result:?}")
        };
        assert!(
            message.contains("another process keeps the database locked"),
            "{message}"
        );
    }
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    };
    let ((result, _), ()) = tokio::join!(call(&write, json!({})), release);
    assert_eq!(result_data(result), json!({"rows_affected": 3}));
}

#[tokio::test]
async fn tools_share_the_connections_of_a_database() {
    let shop = Shop::new().await;
    let file = shop
        .folder
        .path()
        .join("shop.db")
        .to_string_lossy()
        .into_owned();
    let tools = [
        shop.tool("select 1 as x", Effect::Read),
        shop.tool("select 2 as x", Effect::Read),
    ];
    for _ in 0..3 {
        for tool in &tools {
            call(tool, json!({})).await.0.unwrap();
        }
    }
    // The connection that created the database may take a moment to close.
    wait_until("one connection is open", || open_connections(&file) == 1).await;
    let many: Vec<_> = (0..40).map(|_| call(&tools[0], json!({}))).collect();
    for (result, _) in futures_util::future::join_all(many).await {
        assert_eq!(result_data(result), json!([{"x": 1}]));
    }
    assert!(open_connections(&file) <= 8);
}

#[tokio::test]
async fn database_errors_are_error_results() {
    let shop = Shop::new().await;
    let result = shop
        .run_read(
            "select json_extract(:doc, '$.a') as x",
            json!({"doc": "{no json"}),
        )
        .await;
    assert!(
        matches!(&result, Err(ToolError::ErrorResult(text)) if text.contains("malformed JSON")),
        "{result:?}"
    );
    let without_table = shop.tool("select name from customers", Effect::Read);
    sqlx::raw_sql("drop table customers")
        .execute(&mut shop.connect().await)
        .await
        .unwrap();
    let (result, _) = call(&without_table, json!({})).await;
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
}

#[tokio::test]
async fn connection_commands_are_refused() {
    let shop = Shop::new().await;
    let guarded = shop.tool("select query_only from pragma_query_only", Effect::Read);
    for command in [
        "pragma query_only=off",
        "pragma writable_schema=on",
        "attach 'other.db' as other",
        "detach other",
        "begin",
        "commit",
        "savepoint s",
        "create temp table t (x)",
        "create temp view v as select 1",
        "create table temp.t (x)",
    ] {
        for prefix in [
            "",
            "\u{feff}",
            " \u{feff}/* x */\u{feff}",
            "\x0C",
            "explain ",
            "explain query plan ",
        ] {
            for effect in [Effect::Read, Effect::Write] {
                let statement = format!("{prefix}{command}");
                let finding = first_message(shop.build_tool(&statement, effect, json!({})));
                assert!(
                    finding.contains("command to the connection"),
                    "{statement:?}: {finding}"
                );
            }
        }
    }
    assert_eq!(
        result_data(call(&guarded, json!({})).await.0),
        json!([{"query_only": 1}]),
        "the guard is on"
    );
    let columns = "select name from pragma_table_info('customers') order by cid limit 2";
    assert_eq!(
        result_data(shop.run_read(columns, json!({})).await),
        json!([{"name": "id"}, {"name": "name"}]),
        "this only asks"
    );
}

#[tokio::test]
async fn explain_is_a_read_statement() {
    let shop = Shop::new().await;
    let plan = "explain query plan select * from customers where id = :n";
    let plan = result_data(shop.run_read(plan, json!({"n": 1})).await);
    assert!(
        plan[0]["detail"].as_str().unwrap().contains("customers"),
        "{plan}"
    );
    let program = result_data(
        shop.run_read("explain delete from customers", json!({}))
            .await,
    );
    assert!(
        program
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["opcode"] == "Delete" || row["opcode"] == "Clear"),
        "{program}"
    );
    assert_eq!(shop.count_customers().await, 3, "it was shown, not done");
}

#[tokio::test]
async fn long_value_is_refused_without_reading() {
    let shop = Shop::new().await;
    for statement in [
        "select hex(zeroblob(100000000)) as x",
        "select replace(hex(zeroblob(1000000)), '0', 'xxxxxxxxxx') as x",
        "select length(hex(zeroblob(100000000))) as x",
        "select group_concat(hex(zeroblob(1000000))) as x from (select 1 union all select 2 union all select 3)",
    ] {
        let result = shop.run_read(statement, json!({})).await;
        let Err(ToolError::BadOutput(message)) = &result else {
            panic!("{statement}: {result:?}")
        };
        assert!(
            message.contains("longer than 4194304 bytes") && message.contains("raise max_output"),
            "{message}"
        );
    }
    sqlx::raw_sql(
        "create table docs (id integer primary key, doc, note); \
        insert into docs values (1, 'short', 'a'), (2, zeroblob(20000000), 'b'), (3, zeroblob(1000000), 'c')",
    )
    .execute(&mut shop.connect().await)
    .await
    .unwrap();
    let (all, warnings) = call(
        &shop.tool("select id, doc from docs order by id", Effect::Read),
        json!({}),
    )
    .await;
    assert_eq!(
        result_data(all),
        json!([{"id": 1, "doc": "short"}]),
        "what stands before it is shown"
    );
    assert!(
        warnings[0].starts_with("the rows are longer than 262144 bytes (max_output): the first 1"),
        "{warnings:?}"
    );
    let lengths = shop
        .run_read("select length(doc) as n from docs order by id", json!({}))
        .await;
    assert_eq!(
        result_data(lengths),
        json!([{"n": 5}, {"n": 20_000_000}, {"n": 1_000_000}]),
        "SQLite does not read it for that"
    );
    let result = shop
        .run_read("select id, doc from docs where id = 3", json!({}))
        .await;
    let Err(ToolError::BadOutput(message)) = &result else {
        panic!("{result:?}")
    };
    assert!(
        message.contains("its longest column, `doc`, has 1000000 bytes"),
        "{message}"
    );
    // A change may handle long values if it does not return them.
    let note = shop.tool("update docs set note = :a where id = 2", Effect::Write);
    assert_eq!(
        result_data(call(&note, json!({"a": "z"})).await.0),
        json!({"rows_affected": 1})
    );
    let shown = shop.tool(
        "update docs set note = :a where id = 2 returning doc",
        Effect::Write,
    );
    let result = call(&shown, json!({"a": "y"})).await.0;
    let Err(ToolError::Upstream(UpstreamFailure {
        message,
        not_delivered: true,
        retryable: false,
        ..
    })) = &result
    else {
        panic!("{result:?}")
    };
    assert!(message.contains("nothing was changed"), "{message}");
    assert_eq!(
        result_data(
            shop.run_read("select note from docs where id = 2", json!({}))
                .await
        ),
        json!([{"note": "z"}])
    );
    let small = shop.tool(
        "update docs set note = :a where id = 1 returning id, note",
        Effect::Write,
    );
    assert_eq!(
        result_data(call(&small, json!({"a": "x"})).await.0),
        json!([{"id": 1, "note": "x"}]),
        "the connection is in order"
    );
    let (more, _) = shop
        .build_tool(
            "select hex(zeroblob(3000000)) as x",
            Effect::Read,
            json!({"max_output": "4MiB"}),
        )
        .unwrap();
    let result = call(&more, json!({})).await.0;
    assert!(
        matches!(&result, Err(ToolError::BadOutput(message)) if message.contains("`x`, has 6000000 bytes")),
        "{result:?}"
    );
}
