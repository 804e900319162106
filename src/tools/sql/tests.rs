//! Tests statements on real databases. No test sleeps for a fixed time: each polls until its condition is true.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::*;
use crate::call::{Caller, Effect, Invocation, ToolName, ToolSettings};
use crate::tools::{BuildContext, Clients, ConfigFault};

/// How long a condition may take to become true.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A statement that would run for hours, and returns its row only at its end.
const ENDLESS: &str = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 100000000000) \
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
        statement.match_indices(&format!(":{name}")).any(|(at, found)| {
            let next = statement[at + found.len()..].chars().next();
            !statement[..at].ends_with(':') && !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    };
    let names = ["a", "b", "ids", "name", "n", "doc"].into_iter().filter(is_named);
    json!({"properties": names.map(|name| (name.to_owned(), json!({}))).collect::<JsonObject>()})
}

pub(super) type Built = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

pub(super) fn build_in(base: &Path, config: Value, effect: Effect, databases: &Databases) -> Built {
    let schema = schema(config["statement"].as_str().unwrap());
    let (fields, clients) = (["tenant".to_owned()], Clients::default());
    let context = BuildContext {
        base,
        input_schema: &schema,
        fields: &fields,
        effect,
        trusted: true,
        clients: &clients,
        databases,
    };
    build(serde_json::from_value(config).unwrap(), &context)
}

pub(super) async fn call(runner: &Arc<dyn Runner>, arguments: Value) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let invocation = invocation();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
    let result = runner.call(object(arguments), context).await;
    let warnings = invocation.notes.lock().meta.warnings.clone();
    (result, warnings)
}

pub(super) fn data(result: Result<ToolResult, ToolError>) -> Value {
    let result = result.unwrap();
    assert!(!result.is_error, "{result:?}");
    let data = result.structured_content.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&result.content[0].text_of()).unwrap(), data, "the text is the same");
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
        let shop = Self { folder: tempfile::tempdir().unwrap(), databases: Databases::default() };
        let script = "create table customers (id integer primary key, name text not null unique, revenue, year integer);
            insert into customers values (1, 'Ann', 12.5, 2024), (2, 'Bo', 9007199254740993, 2024), (3, 'Cy', null, 2025);";
        sqlx::raw_sql(script).execute(&mut shop.connect().await).await.unwrap();
        shop
    }

    async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.folder.path().join("shop.db")).create_if_missing(true);
        options.connect().await.unwrap()
    }

    fn try_tool(&self, statement: &str, effect: Effect, more: Value) -> Built {
        let mut config = json!({"database": "sqlite://shop.db", "statement": statement});
        config.as_object_mut().unwrap().extend((*object(more)).clone());
        build_in(self.folder.path(), config, effect, &self.databases)
    }

    fn tool(&self, statement: &str, effect: Effect) -> Arc<dyn Runner> {
        self.try_tool(statement, effect, json!({})).unwrap_or_else(|faults| panic!("{faults:?}")).0
    }

    async fn read(&self, statement: &str, arguments: Value) -> Result<ToolResult, ToolError> {
        call(&self.tool(statement, Effect::Read), arguments).await.0
    }

    async fn count(&self) -> i64 {
        sqlx::query_scalar("select count(*) from customers").fetch_one(&mut self.connect().await).await.unwrap()
    }
}

pub(super) fn first(built: Built) -> String {
    match built {
        Ok((_, warnings)) => format!("warning: {}", warnings.first().map_or("none", |one| &one.message)),
        Err(faults) => faults.into_iter().next().unwrap().message,
    }
}

#[tokio::test]
async fn rows_are_objects_and_values_keep_their_types() {
    let shop = Shop::new().await;
    let rows = shop.read("select * from customers where year = :n order by id", json!({"n": 2024})).await;
    assert_eq!(
        data(rows),
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
        data(rows),
        json!([{"most": i64::MAX, "least": i64::MIN, "above": "Infinity", "below": "-Infinity", "tenth": 0.1,
            "bytes": "AP8=", "text": "ü", "nothing": "", "missing": null, "truth": 1, "day": "2024-01-02", "broken": "/w=="}])
    );
    assert!(warnings[0].contains("`broken` holds a text that is not UTF-8"), "{warnings:?}");
    let mixed = shop.read("select revenue as r, typeof(revenue) as t from customers order by id", json!({})).await;
    assert_eq!(data(mixed)[2], json!({"r": null, "t": "null"}), "by value, not by column");
}

#[tokio::test]
async fn arguments_are_bound_and_never_read_as_sql() {
    let shop = Shop::new().await;
    let statement = "select :a as a, typeof(:a) as t, :b as b";
    for (argument, want, kind) in [
        (json!("x' or 1=1; drop table customers --"), json!("x' or 1=1; drop table customers --"), "text"),
        (json!(":b"), json!(":b"), "text"),
        (json!(i64::MAX), json!(i64::MAX), "integer"),
        (json!(0.1), json!(0.1), "real"),
        (json!(true), json!(1), "integer"),
        (json!(null), json!(null), "null"),
        (json!([1, "x"]), json!("[1,\"x\"]"), "text"),
        (json!({"k": 1}), json!("{\"k\":1}"), "text"),
        (json!("a\0b"), json!("a\0b"), "text"),
    ] {
        let said = shop.read(statement, json!({"a": argument})).await;
        assert_eq!(data(said), json!([{"a": want, "t": kind, "b": null}]), "an absent one is NULL");
    }
    let listed = "select name from customers where id in (select value from json_each(:ids)) order by id";
    assert_eq!(data(shop.read(listed, json!({"ids": [1, 3]})).await), json!([{"name": "Ann"}, {"name": "Cy"}]));
    let Err(ToolError::InvalidArguments(faults)) = shop.read(statement, json!({"a": u64::MAX})).await else { panic!() };
    assert_eq!(faults[0].pointer, "/a");
    assert_eq!(shop.count().await, 3);
}

#[tokio::test]
async fn long_answers_are_cut_and_say_so() {
    let shop = Shop::new().await;
    let numbers = "with recursive n(x) as (select 1 union all select x + 1 from n where x < :n) select x from n";
    let (runner, _) = shop.try_tool(numbers, Effect::Read, json!({"max_rows": 3})).unwrap();
    let (exact, warnings) = call(&runner, json!({"n": 3})).await;
    assert_eq!((data(exact).as_array().unwrap().len(), warnings.len()), (3, 0));
    let began = Instant::now();
    // Many more rows than could be read in the time.
    let (cut, warnings) = call(&runner, json!({"n": 100_000_000_000_i64})).await;
    assert_eq!(data(cut), json!([{"x": 1}, {"x": 2}, {"x": 3}]));
    assert!(
        warnings[0].starts_with("there are more than 3 rows (max_rows): the first 3 are shown. Ask for"),
        "{warnings:?}"
    );
    let (again, _) = call(&runner, json!({"n": 1})).await;
    assert_eq!(data(again), json!([{"x": 1}]), "the connection is in order");
    assert!(began.elapsed() < PATIENCE);

    let (runner, _) = shop.try_tool(numbers, Effect::Read, json!({"max_output": "20B"})).unwrap();
    let (cut, warnings) = call(&runner, json!({"n": 50})).await;
    let cut = cut.unwrap();
    assert_eq!(cut.content[0].text_of(), r#"[{"x":1},{"x":2}]"#);
    assert!(warnings[0].starts_with("the rows are longer than 20 bytes (max_output)"), "{warnings:?}");
    let (runner, _) = shop.try_tool("select :a as a", Effect::Read, json!({"max_output": "20B"})).unwrap();
    let (none, _) = call(&runner, json!({"a": "x".repeat(30)})).await;
    assert!(matches!(&none, Err(ToolError::BadOutput(said)) if said.contains("first row alone")), "{none:?}");
}

#[tokio::test]
async fn only_what_declares_it_may_write_and_the_database_sees_to_that() {
    let shop = Shop::new().await;
    for statement in [
        "insert into customers values (9, 'X', 1, 1)",
        "/* select */ delete from customers",
        "with x as (select 1) update customers set year = 1 returning id",
        "create table t (x)",
        "analyze",
    ] {
        let said = first(shop.try_tool(statement, Effect::Read, json!({})));
        assert!(said.contains("declare effect: write"), "{statement}: {said}");
    }
    let later = tempfile::tempdir().unwrap();
    for statement in ["delete from customers returning id", "create table t (x)"] {
        let config = json!({"database": "sqlite://shop.db", "statement": statement});
        let (runner, warnings) = build_in(later.path(), config, Effect::Read, &Databases::default()).unwrap();
        assert!(warnings[0].message.contains("there is no file "), "{warnings:?}");
        std::fs::copy(shop.folder.path().join("shop.db"), later.path().join("shop.db")).unwrap();
        let (said, _) = call(&runner, json!({})).await;
        let Err(ToolError::Upstream { message, retryable: false, untouched: true, .. }) = said else {
            panic!("{said:?}")
        };
        assert!(message.contains("declare effect: write"), "{message}");
        std::fs::remove_file(later.path().join("shop.db")).unwrap();
    }
    assert_eq!(shop.count().await, 3);
}

#[tokio::test]
async fn a_write_is_whole_or_not_at_all() {
    let shop = Shop::new().await;
    let rename = shop.tool("update customers set year = :n where year = 2024", Effect::Write);
    assert_eq!(data(call(&rename, json!({"n": 1999})).await.0), json!({"rows_affected": 2}));
    assert_eq!(data(call(&rename, json!({"n": 1})).await.0), json!({"rows_affected": 0}));
    let table = shop.tool("create table if not exists t (x)", Effect::Idempotent);
    assert_eq!(data(call(&table, json!({})).await.0), json!({"rows_affected": 0}));
    let insert = "insert into customers (name) select value from json_each(:ids) returning id, name";
    let (insert, _) = shop.try_tool(insert, Effect::Write, json!({"max_rows": 1})).unwrap();
    let (kept, warnings) = call(&insert, json!({"ids": ["Di", "Ed"]})).await;
    assert_eq!(data(kept), json!([{"id": 4, "name": "Di"}]));
    assert!(warnings[0].contains("ran to its end"), "{warnings:?}");
    assert_eq!(shop.count().await, 5, "both are in");
    let (refused, _) = call(&insert, json!({"ids": ["Fi", "Ann"]})).await;
    let Err(ToolError::Said(said)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("UNIQUE constraint failed: customers.name"), "{said}");
    assert_eq!(shop.count().await, 5, "neither is in");
    assert_eq!(data(call(&insert, json!({"ids": ["Gu"]})).await.0)[0]["name"], "Gu");
}

#[tokio::test]
async fn what_is_wrong_with_a_statement_is_said_at_the_start() {
    let shop = Shop::new().await;
    for (statement, want) in [
        (
            "select :nme, :name",
            "line 1, column 8 of the statement: the tool has no parameter `nme`, did you mean `:name`?",
        ),
        ("select 1; select 2", "a second statement begins here"),
        ("", "it is empty"),
        ("select from", "syntax error"),
        ("select id, id from customers", "two columns are called `id`"),
        ("select * from custmers", "warning: no such table: custmers; until that is so, calls will fail"),
        ("select nme from customers", "warning: no such column: nme"),
    ] {
        let said = first(shop.try_tool(statement, Effect::Read, json!({})));
        assert!(said.contains(want), "{statement}: {said}");
    }
    let config = json!({"database": "sqlite://shop.db", "statement": "select 1 as x"});
    let schema = json!({"properties": {"year": {}}});
    let (clients, databases) = (Clients::default(), Databases::default());
    let context = BuildContext {
        base: shop.folder.path(),
        input_schema: &schema,
        fields: &[],
        effect: Effect::Read,
        trusted: true,
        clients: &clients,
        databases: &databases,
    };
    let built = build(serde_json::from_value(config).unwrap(), &context);
    assert_eq!(first(built), "warning: the parameter `year` is not used; write :year where it belongs");
    for (key, value, want) in [
        ("database", json!("mysql://x"), "write sqlite://FILE or postgres://"),
        ("database", json!("sqlite://"), "no file is named"),
        ("database", json!("sqlite://:memory:"), "in memory"),
        ("database", json!("sqlite://shop.db?mode=rwc"), "takes no options"),
        ("max_rows", json!(0), "from 1 to"),
        ("max_output", json!("5MiB"), "from 1B to 4MiB"),
    ] {
        let said = first(shop.try_tool("select 1 as x", Effect::Read, json!({key: value})));
        assert!(said.contains(want), "{key}: {said}");
    }
}

#[tokio::test]
async fn a_missing_file_is_never_made_and_found_when_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"database": "sqlite://late.db", "statement": "select 1 as x"});
    for effect in [Effect::Read, Effect::Write] {
        let (runner, warnings) = build_in(folder.path(), config.clone(), effect, &Databases::default()).unwrap();
        assert!(warnings[0].message.contains("late.db; it is not made here"), "{warnings:?}");
        let (said, _) = call(&runner, json!({})).await;
        let Err(ToolError::Upstream { message, untouched: true, down: true, .. }) = said else { panic!("{said:?}") };
        assert!(message.contains("there is no file "), "{message}");
        assert!(!folder.path().join("late.db").exists());
        let options = SqliteConnectOptions::new().filename(folder.path().join("late.db")).create_if_missing(true);
        sqlx::raw_sql("create table t (x)").execute(&mut options.connect().await.unwrap()).await.unwrap();
        assert_eq!(data(call(&runner, json!({})).await.0), json!([{"x": 1}]));
        std::fs::remove_file(folder.path().join("late.db")).unwrap();
    }
    std::fs::write(folder.path().join("late.db"), "no database at all, but long enough to be looked at").unwrap();
    let (runner, warnings) = build_in(folder.path(), config, Effect::Read, &Databases::default()).unwrap();
    assert!(warnings[0].message.contains("is not a SQLite database"), "{warnings:?}");
    assert!(call(&runner, json!({})).await.0.is_err());
}

#[tokio::test]
async fn a_file_or_table_that_was_replaced_is_read_anew() {
    let shop = Shop::new().await;
    let all = shop.tool("select * from customers order by id limit 1", Effect::Read);
    assert_eq!(data(call(&all, json!({})).await.0)[0]["name"], "Ann");
    let change = "alter table customers add column extra default 'e'";
    sqlx::raw_sql(change).execute(&mut shop.connect().await).await.unwrap();
    assert_eq!(data(call(&all, json!({})).await.0)[0]["extra"], "e", "another column");
    let other = Shop::new().await;
    sqlx::raw_sql("update customers set name = 'Zoe' where id = 1").execute(&mut other.connect().await).await.unwrap();
    std::fs::rename(other.folder.path().join("shop.db"), shop.folder.path().join("shop.db")).unwrap();
    assert_eq!(data(call(&all, json!({})).await.0)[0]["name"], "Zoe", "another file");
}

/// The number of threads of this process that serve SQLite connections to the file.
fn sql_threads(open: &str) -> usize {
    // A connection whose thread still runs has its file open.
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().contains(open))).count()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_dropped_call_stops_its_statement() {
    let shop = Shop::new().await;
    let file = shop.folder.path().join("shop.db").to_string_lossy().into_owned();
    let delete = format!("delete from customers where id < ({ENDLESS})");
    for (statement, effect) in [(ENDLESS, Effect::Read), (delete.as_str(), Effect::Write)] {
        let runner = shop.tool(statement, effect);
        let dropped = tokio::time::timeout(Duration::from_millis(300), call(&runner, json!({}))).await;
        assert!(dropped.is_err(), "{statement} came to an end");
        until("the thread has ended and the file is closed", || sql_threads(&file) == 0).await;
    }
    assert_eq!(shop.count().await, 3, "rolled back");
}

#[tokio::test]
async fn another_process_that_writes_is_waited_for_and_no_longer_than_the_deadline() {
    let shop = Shop::new().await;
    let (write, read) = (
        shop.tool("update customers set year = 1", Effect::Write),
        shop.tool("select count(*) as n from customers", Effect::Read),
    );
    let mut other = shop.connect().await;
    sqlx::raw_sql("begin exclusive").execute(&mut other).await.unwrap();
    for runner in [&write, &read] {
        let invocation = invocation();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(300);
        let context = ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
        let said = runner.call(object(json!({})), context).await;
        let Err(ToolError::Upstream { message, retryable: true, untouched: true, .. }) = said else {
            panic!("{said:?}")
        };
        assert!(message.contains("another process keeps the database locked"), "{message}");
    }
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    };
    let ((said, _), ()) = tokio::join!(call(&write, json!({})), release);
    assert_eq!(data(said), json!({"rows_affected": 3}));
}

#[tokio::test]
async fn tools_share_the_connections_of_their_database() {
    let shop = Shop::new().await;
    let file = shop.folder.path().join("shop.db").to_string_lossy().into_owned();
    let tools = [shop.tool("select 1 as x", Effect::Read), shop.tool("select 2 as x", Effect::Read)];
    for _ in 0..3 {
        for tool in &tools {
            call(tool, json!({})).await.0.unwrap();
        }
    }
    // The connection that created the database may take a moment to close.
    until("one connection is open", || sql_threads(&file) == 1).await;
    let many: Vec<_> = (0..40).map(|_| call(&tools[0], json!({}))).collect();
    for (said, _) in futures_util::future::join_all(many).await {
        assert_eq!(data(said), json!([{"x": 1}]));
    }
    assert!(sql_threads(&file) <= 8);
}

#[tokio::test]
async fn what_the_database_refuses_is_an_answer() {
    let shop = Shop::new().await;
    let said = shop.read("select json_extract(:doc, '$.a') as x", json!({"doc": "{no json"})).await;
    assert!(matches!(&said, Err(ToolError::Said(text)) if text.contains("malformed JSON")), "{said:?}");
    let gone = shop.tool("select name from customers", Effect::Read);
    sqlx::raw_sql("drop table customers").execute(&mut shop.connect().await).await.unwrap();
    let (said, _) = call(&gone, json!({})).await;
    assert!(matches!(&said, Err(ToolError::Upstream { retryable: false, .. })), "{said:?}");
}

#[tokio::test]
async fn commands_to_the_connection_never_pass() {
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
        for prefix in ["", "\u{feff}", " \u{feff}/* x */\u{feff}", "\x0C", "explain ", "explain query plan "] {
            for effect in [Effect::Read, Effect::Write] {
                let statement = format!("{prefix}{command}");
                let said = first(shop.try_tool(&statement, effect, json!({})));
                assert!(said.contains("command to the connection"), "{statement:?}: {said}");
            }
        }
    }
    assert_eq!(data(call(&guarded, json!({})).await.0), json!([{"query_only": 1}]), "the guard is on");
    let columns = "select name from pragma_table_info('customers') order by cid limit 2";
    assert_eq!(data(shop.read(columns, json!({})).await), json!([{"name": "id"}, {"name": "name"}]), "this only asks");
}

#[tokio::test]
async fn explain_is_a_statement_that_reads() {
    let shop = Shop::new().await;
    let plan = "explain query plan select * from customers where id = :n";
    let plan = data(shop.read(plan, json!({"n": 1})).await);
    assert!(plan[0]["detail"].as_str().unwrap().contains("customers"), "{plan}");
    let program = data(shop.read("explain delete from customers", json!({})).await);
    assert!(
        program.as_array().unwrap().iter().any(|row| row["opcode"] == "Delete" || row["opcode"] == "Clear"),
        "{program}"
    );
    assert_eq!(shop.count().await, 3, "it was shown, not done");
}

#[tokio::test]
async fn a_long_value_is_refused_unread() {
    let shop = Shop::new().await;
    for statement in [
        "select hex(zeroblob(100000000)) as x",
        "select replace(hex(zeroblob(1000000)), '0', 'xxxxxxxxxx') as x",
        "select length(hex(zeroblob(100000000))) as x",
        "select group_concat(hex(zeroblob(1000000))) as x from (select 1 union all select 2 union all select 3)",
    ] {
        let said = shop.read(statement, json!({})).await;
        let Err(ToolError::BadOutput(message)) = &said else { panic!("{statement}: {said:?}") };
        assert!(message.contains("longer than 4194304 bytes") && message.contains("raise max_output"), "{message}");
    }
    sqlx::raw_sql(
        "create table docs (id integer primary key, doc, note); \
        insert into docs values (1, 'short', 'a'), (2, zeroblob(20000000), 'b'), (3, zeroblob(1000000), 'c')",
    )
    .execute(&mut shop.connect().await)
    .await
    .unwrap();
    let (all, warnings) = call(&shop.tool("select id, doc from docs order by id", Effect::Read), json!({})).await;
    assert_eq!(data(all), json!([{"id": 1, "doc": "short"}]), "what stands before it is shown");
    assert!(warnings[0].starts_with("the rows are longer than 262144 bytes (max_output): the first 1"), "{warnings:?}");
    let lengths = shop.read("select length(doc) as n from docs order by id", json!({})).await;
    assert_eq!(
        data(lengths),
        json!([{"n": 5}, {"n": 20_000_000}, {"n": 1_000_000}]),
        "SQLite does not read it for that"
    );
    let said = shop.read("select id, doc from docs where id = 3", json!({})).await;
    let Err(ToolError::BadOutput(message)) = &said else { panic!("{said:?}") };
    assert!(message.contains("its longest column, `doc`, has 1000000 bytes"), "{message}");
    // A change may handle long values if it does not return them.
    let note = shop.tool("update docs set note = :a where id = 2", Effect::Write);
    assert_eq!(data(call(&note, json!({"a": "z"})).await.0), json!({"rows_affected": 1}));
    let shown = shop.tool("update docs set note = :a where id = 2 returning doc", Effect::Write);
    let said = call(&shown, json!({"a": "y"})).await.0;
    let Err(ToolError::Upstream { message, untouched: true, retryable: false, .. }) = &said else { panic!("{said:?}") };
    assert!(message.contains("nothing was changed"), "{message}");
    assert_eq!(data(shop.read("select note from docs where id = 2", json!({})).await), json!([{"note": "z"}]));
    let small = shop.tool("update docs set note = :a where id = 1 returning id, note", Effect::Write);
    assert_eq!(
        data(call(&small, json!({"a": "x"})).await.0),
        json!([{"id": 1, "note": "x"}]),
        "the connection is in order"
    );
    let (more, _) =
        shop.try_tool("select hex(zeroblob(3000000)) as x", Effect::Read, json!({"max_output": "4MiB"})).unwrap();
    let said = call(&more, json!({})).await.0;
    assert!(matches!(&said, Err(ToolError::BadOutput(said)) if said.contains("`x`, has 6000000 bytes")), "{said:?}");
}
