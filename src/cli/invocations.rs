//! `toolcrib invocations`: recorded calls, newest first, from a running server or from the ledger's
//! file.

use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::Failure;
use super::client::{ServerArgs, encode_query, print_answer};
use super::durations::{format_age, format_millis, parse_time_option};
use super::ledger_source::LedgerArgs;
use super::output::{OutputArgs, print_line, print_table};
use super::table::{Content, Table};
use crate::call::{Caller, Clock, ErrorKind};
use crate::environment::Environment;
use crate::http::InvocationView;
use crate::ledger::{Query, State};

/// The length of an id in the table: the last group of its digits. Calls that start together differ
/// there.
pub(super) const SHORT_ID: usize = 12;

/// Arguments of `invocations`.
#[derive(clap::Args)]
pub(super) struct InvocationArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only calls of this caller.
    #[arg(long)]
    caller: Option<String>,
    /// Only calls of this run.
    #[arg(long)]
    run_id: Option<String>,
    /// Only calls in these states, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_state)]
    state: Vec<State>,
    /// Only calls that failed with this kind.
    #[arg(long, value_parser = parse_kind)]
    kind: Option<ErrorKind>,
    /// Only calls with this text in the name of the tool, in the detail, or in the text of the error.
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,
    /// Only calls that started at or after this time, or within this span, such as 15m.
    #[arg(long, value_name = "TIME|SPAN")]
    since: Option<String>,
    /// Only calls that started before this time, or longer ago than this span.
    #[arg(long, value_name = "TIME|SPAN")]
    until: Option<String>,
    /// Maximum number of calls.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: InvocationArgs, environment: &Environment) -> Result<(), Failure> {
    let is_for_people = args.output.is_for_people();
    let print = |answer: &Value| print_for_people(answer, environment);
    if let Some(client) = args.server.client()? {
        let answer = client
            .get(&format!("/invocations?{}", build_query(&args)))
            .await?;
        return print_answer(answer, is_for_people, print);
    }
    let now = Clock::system().now();
    let time = |option, text: &Option<String>| parse_time_option(option, text.as_deref(), now);
    let (since, until) = (time("since", &args.since)?, time("until", &args.until)?);
    let ledger = args.ledger.open(environment).await?;
    let query = Query {
        tool: args.tool,
        caller: args.caller,
        run_id: args.run_id,
        states: args.state,
        kind: args.kind,
        text: args.q,
        since,
        until,
        limit: args.limit + 1,
        ..Query::default()
    };
    let mut rows = ledger.list_calls(&query).await?;
    let more = rows.len() > args.limit as usize;
    rows.truncate(args.limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let views: Vec<Value> = rows
        .iter()
        .map(|row| json!(InvocationView::from(row)))
        .collect();
    let answer = json!({"invocations": views, "next_cursor": next});
    print_answer((StatusCode::OK, answer), is_for_people, print)
}

fn parse_state(word: &str) -> Result<State, String> {
    State::from_name(word).ok_or_else(|| format!("there is no state `{word}`"))
}

fn parse_kind(word: &str) -> Result<ErrorKind, String> {
    word.parse()
        .map_err(|_| format!("there is no kind `{word}`"))
}

fn build_query(args: &InvocationArgs) -> String {
    let limit = args.limit.to_string();
    let states: Vec<&str> = args.state.iter().map(|state| state.as_str()).collect();
    let states = (!states.is_empty()).then(|| states.join(","));
    encode_query([
        ("limit", Some(&*limit)),
        ("tool", args.tool.as_deref()),
        ("caller", args.caller.as_deref()),
        ("run_id", args.run_id.as_deref()),
        ("state", states.as_deref()),
        ("kind", args.kind.map(ErrorKind::as_str)),
        ("q", args.q.as_deref()),
        ("since", args.since.as_deref()),
        ("until", args.until.as_deref()),
    ])
}

fn print_for_people(answer: &Value, environment: &Environment) {
    print_table(
        &build_table(answer, Clock::system().now()),
        "no calls",
        environment,
    );
    if answer["next_cursor"].is_string() {
        print_line("\nOlder calls are not shown; --limit shows up to 500.");
    }
}

fn build_table(answer: &Value, now: Timestamp) -> Table {
    let mut table = Table::new(&[
        ("ID", Content::Word),
        ("AGE", Content::Number),
        ("TOOL", Content::Name),
        ("CALLER", Content::Name),
        ("STATE", Content::Word),
        ("TIME", Content::Number),
        ("DETAIL", Content::Prose),
    ]);
    let rows = || answer["invocations"].as_array().into_iter().flatten();
    // Without callers there is only one, and it says nothing.
    let is_only_anonymous = rows().all(|row| row["caller"] == Caller::ANONYMOUS);
    for row in rows() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let started: Option<Timestamp> = row["started_at"]
            .as_str()
            .and_then(|time| time.parse().ok());
        let state = match row["count"].as_u64() {
            Some(count) if count > 1 => format!("{} ×{count}", text("state")),
            _ => text("state"),
        };
        let detail = Some(text("detail"))
            .filter(|detail| !detail.is_empty())
            .unwrap_or_else(|| text("kind"));
        table.add_row([
            shorten_id(&text("invocation_id")).to_owned(),
            started
                .map(|started| format_age(started, now))
                .unwrap_or_default(),
            text("tool"),
            if is_only_anonymous {
                String::new()
            } else {
                text("caller")
            },
            state,
            row["duration_ms"]
                .as_f64()
                .map(format_millis)
                .unwrap_or_default(),
            detail,
        ]);
    }
    table
}

/// The end of an id, as the table shows it. `toolcrib cancel` takes it.
fn shorten_id(id: &str) -> &str {
    id.len()
        .checked_sub(SHORT_ID)
        .and_then(|at| id.get(at..))
        .unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rows: &Value) -> String {
        build_table(
            &json!({"invocations": rows}),
            "2026-01-01T12:10:00Z".parse().unwrap(),
        )
        .format(80)
    }

    #[test]
    fn calls_fit_into_80_columns() {
        let row = |caller: &str, state: &str, detail: Value| {
            json!({"invocation_id": "01a20577-ca40-7512-85fa-ab1f76c13d31", "tool": "get_book", "caller": caller, "state": state,
                   "kind": "upstream_failed", "detail": detail, "started_at": "2026-01-01T12:05:00Z", "duration_ms": 12.6, "count": 1})
        };
        let detail = json!("the connection to 127.0.0.1 was refused");
        assert_eq!(
            shown(&json!([
                row("anonymous", "failed", detail.clone()),
                row("anonymous", "failed", Value::Null)
            ])),
            "ID            AGE  TOOL      STATE    TIME  DETAIL\n\
             ab1f76c13d31   5m  get_book  failed  13 ms  the connection to 127.0.0.1 was ref…\n\
             ab1f76c13d31   5m  get_book  failed  13 ms  upstream_failed"
        );
        assert!(
            shown(&json!([
                row("anonymous", "failed", detail),
                row("alice", "failed", Value::Null)
            ]))
            .contains("CALLER")
        );
    }

    #[test]
    fn shared_rows_show_their_count() {
        let row = json!({"invocation_id": "x", "tool": "a", "caller": "anonymous", "state": "refused", "count": 120});
        assert_eq!(
            shown(&json!([row])),
            "ID  TOOL  STATE\nx   a     refused ×120"
        );
    }
}
