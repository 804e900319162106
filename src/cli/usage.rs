//! `toolcrib usage`: totals for each tool and caller, from a running server or from the ledger's
//! file. With `--bucket`: counts by time, from a running server.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::Failure;
use super::client::{Client, ServerArgs, encode_query, print_answer};
use super::durations::format_millis;
use super::ledger_source::LedgerArgs;
use super::output::{OutputArgs, print_line, print_table};
use super::table::{Content, Table};
use crate::environment::Environment;
use crate::http::ToolUsage;

/// Arguments of `usage`.
#[derive(clap::Args)]
pub(super) struct UsageArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Counts by time instead of totals, in buckets of this length. Needs --server.
    #[arg(long, value_parser = ["1m", "1h", "1d"])]
    bucket: Option<String>,
    /// Only calls that started at or after this time, or within this span, such as 15m.
    #[arg(long, value_name = "TIME|SPAN", requires = "bucket")]
    since: Option<String>,
    /// Only calls that started before this time, or longer ago than this span.
    #[arg(long, value_name = "TIME|SPAN", requires = "bucket")]
    until: Option<String>,
    /// One row for each tool, caller, or run of a caller, instead of each tool and caller.
    #[arg(long, value_parser = ["tool", "caller", "run"], requires = "bucket")]
    by: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: UsageArgs, environment: &Environment) -> Result<(), Failure> {
    let is_for_people = args.output.is_for_people();
    let client = args.server.client()?;
    if args.bucket.is_some() {
        let Some(client) = client else {
            return Err(Failure::Usage(
                "--bucket needs --server: a running server counts by time".into(),
            ));
        };
        return print_buckets(&args, &client, environment).await;
    }
    let print = |answer: &Value| {
        let totals = build_table(&answer["tools"]);
        print_table(&totals, "no calls are recorded", environment);
        let limits = build_limit_table(answer);
        if !limits.is_empty() {
            print_line("");
            print_table(&limits, "", environment);
        }
    };
    if let Some(client) = client {
        return print_answer(client.get("/usage").await?, is_for_people, print);
    }
    let ledger = args.ledger.open(environment).await?;
    let rows = ledger.usage_totals(None).await?;
    let tools: Vec<ToolUsage> = rows.into_iter().map(ToolUsage::from).collect();
    let answer = json!({"tools": tools});
    print_answer((StatusCode::OK, answer), is_for_people, print)
}

async fn print_buckets(
    args: &UsageArgs,
    client: &Client,
    environment: &Environment,
) -> Result<(), Failure> {
    let query = encode_query([
        ("bucket", args.bucket.as_deref()),
        ("since", args.since.as_deref()),
        ("until", args.until.as_deref()),
        ("by", args.by.as_deref()),
    ]);
    let answer = client.get(&format!("/usage?{query}")).await?;
    print_answer(answer, args.output.is_for_people(), |answer| {
        let counts = build_table(&answer["buckets"]);
        print_table(&counts, "no calls are recorded", environment);
    })
}

/// Totals or counts by time. A column that no row fills is not shown, such as the start of totals, or
/// the caller of counts for each tool.
fn build_table(rows: &Value) -> Table {
    let mut table = Table::new(&[
        ("START", Content::Word),
        ("TOOL", Content::Name),
        ("CALLER", Content::Name),
        ("RUN", Content::Name),
        ("CALLS", Content::Number),
        ("OK", Content::Number),
        ("FAILED", Content::Number),
        ("REFUSED", Content::Number),
        ("CACHED", Content::Number),
        ("P50", Content::Number),
        ("P99", Content::Number),
        ("TOKENS", Content::Number),
    ]);
    for row in rows.as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| row[key].as_u64().unwrap_or_default().to_string();
        let time = |key: &str| row[key].as_f64().map(format_millis).unwrap_or_default();
        table.add_row([
            text("start"),
            text("tool"),
            text("caller"),
            text("run_id"),
            number("calls"),
            number("succeeded"),
            number("failed"),
            number("refused"),
            number("cache_hits"),
            time("p50_ms"),
            time("p99_ms"),
            describe_tokens(row),
        ]);
    }
    table
}

/// The tokens that models read and wrote; empty for tools without a model.
fn describe_tokens(row: &Value) -> String {
    let number = |key: &str| row["tokens"][key].as_u64();
    match (number("input_tokens"), number("output_tokens")) {
        (Some(read), Some(written)) => (read + written).to_string(),
        _ => String::new(),
    }
}

/// Each limit once, and whose it is.
fn build_limit_table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        ("LIMIT OF", Content::Name),
        ("COUNTS", Content::Name),
        ("CALLS", Content::Word),
        ("USED", Content::Number),
    ]);
    let mut rows: Vec<[String; 4]> = Vec::new();
    let groups = [("tools", "tool"), ("callers", "caller")];
    for (group, owner) in groups {
        for row in answer[group].as_array().into_iter().flatten() {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            for limit in row["limits"].as_array().into_iter().flatten() {
                let counts = match (owner, limit["scope"].as_str()) {
                    ("caller", _) => "all tools".to_owned(),
                    (_, Some("caller")) => format!("caller {}", text("caller")),
                    _ => "all callers".to_owned(),
                };
                let per = limit["per"].as_str().unwrap_or_default();
                let cells = [
                    format!("{owner} {}", text(owner)),
                    counts,
                    format!("{} per {per}", limit["calls"]),
                    limit["used"].to_string(),
                ];
                if !rows.contains(&cells) {
                    rows.push(cells);
                }
            }
        }
    }
    rows.into_iter().for_each(|cells| table.add_row(cells));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_time_have_only_the_columns_of_their_groups() {
        let row = json!({"start": "2026-06-15T12:00:00Z", "tool": "add", "caller": null, "calls": 12, "succeeded": 10, "failed": 1,
                         "refused": 1, "cache_hits": 0, "p50_ms": 0.42, "p99_ms": 1203.0});
        assert_eq!(
            build_table(&json!([row])).format(100),
            "START                 TOOL  CALLS  OK  FAILED  REFUSED  CACHED     P50    P99\n\
             2026-06-15T12:00:00Z  add      12  10       1        1       0  0.4 ms  1.2 s"
        );
    }

    #[test]
    fn each_limit_is_shown_once_with_its_owner() {
        let limit = |calls: u64, used: u64, scope: &str| json!({"calls": calls, "used": used, "per": "day", "scope": scope});
        let limits = |of_caller: u64| json!([limit(100, 3, "tool"), limit(5, of_caller, "caller")]);
        let answer = json!({
            "tools": [
                {"tool": "get_weather", "caller": "research", "limits": limits(1)},
                {"tool": "get_weather", "caller": "shop", "limits": limits(2)},
            ],
            "callers": [{"caller": "research", "limits": [limit(400, 399, "caller")]}],
        });
        assert_eq!(
            build_limit_table(&answer).format(80),
            "LIMIT OF          COUNTS           CALLS        USED\n\
             tool get_weather  all callers      100 per day     3\n\
             tool get_weather  caller research  5 per day       1\n\
             tool get_weather  caller shop      5 per day       2\n\
             caller research   all tools        400 per day   399"
        );
        assert!(build_limit_table(&json!({"tools": []})).is_empty());
    }

    #[test]
    fn usage_fits_into_80_columns() {
        let row = json!({"tool": "get_weather_now", "caller": "research", "calls": 1234, "succeeded": 1200, "failed": 4, "refused": 30,
                         "cache_hits": 7, "p50_ms": 0.42, "p99_ms": 1203.0});
        assert_eq!(
            build_table(&json!([row])).format(80),
            "TOOL             CALLER    CALLS    OK  FAILED  REFUSED  CACHED     P50    P99\n\
             get_weather_now  research   1234  1200       4       30       7  0.4 ms  1.2 s"
        );
        let without = json!({"tool": "add", "caller": "anonymous", "calls": 1, "succeeded": 1, "p50_ms": null});
        let shown = build_table(&json!([without])).format(80);
        assert_eq!(
            shown,
            "TOOL  CALLER     CALLS  OK  FAILED  REFUSED  CACHED\nadd   anonymous      1   1       0        0       0"
        );
    }
}
