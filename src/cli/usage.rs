//! `toolcrib usage`: totals for each tool and caller, from a running server or from the ledger's
//! file.

use serde_json::{Value, json};

use super::Failure;
use super::client::ServerArgs;
use super::durations::format_millis;
use super::ledger_source::LedgerArgs;
use super::output::{OutputArgs, print_json, print_table};
use super::server_answer::print_answer;
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
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: UsageArgs, environment: &Environment) -> Result<(), Failure> {
    let is_for_people = args.output.is_for_people();
    let print = |answer: &Value| match is_for_people {
        true => print_table(&build_table(answer), "no calls are recorded", environment),
        false => print_json(answer),
    };
    if let Some(client) = args.server.client()? {
        return print_answer(client.get("/usage").await?, is_for_people, print);
    }
    let ledger = args.ledger.open(environment).await?;
    let rows = ledger.usage_totals(None).await?;
    let tools: Vec<ToolUsage> = rows.into_iter().map(ToolUsage::from).collect();
    print(&json!({"tools": tools}));
    Ok(())
}

fn build_table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        ("TOOL", Content::Name),
        ("CALLER", Content::Name),
        ("CALLS", Content::Number),
        ("OK", Content::Number),
        ("FAILED", Content::Number),
        ("REFUSED", Content::Number),
        ("CACHED", Content::Number),
        ("P50", Content::Number),
        ("P99", Content::Number),
        ("LIMITS", Content::Prose),
    ]);
    for row in answer["tools"].as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| row[key].as_u64().unwrap_or_default().to_string();
        let time = |key: &str| row[key].as_f64().map(format_millis).unwrap_or_default();
        let limits = row["limits"]
            .as_array()
            .into_iter()
            .flatten()
            .map(describe_limit)
            .collect::<Vec<_>>();
        table.add_row([
            text("tool"),
            text("caller"),
            number("calls"),
            number("succeeded"),
            number("failed"),
            number("refused"),
            number("cache_hits"),
            time("p50_ms"),
            time("p99_ms"),
            limits.join(", "),
        ]);
    }
    table
}

/// A limit as `3/100 per day`: the calls counted so far, and those that are allowed.
fn describe_limit(limit: &Value) -> String {
    let number = |key: &str| limit[key].as_u64().unwrap_or_default();
    format!(
        "{}/{} per {}",
        number("used"),
        number("limit"),
        limit["per"].as_str().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_fits_into_80_columns() {
        let limits =
            json!([{"limit": 100, "used": 3, "per": "day"}, {"limit": 5, "used": 0, "per": "run"}]);
        let row = json!({"tool": "get_weather", "caller": "research", "calls": 1234, "succeeded": 1200, "failed": 4, "refused": 30,
                         "cache_hits": 7, "p50_ms": 0.42, "p99_ms": 1203.0, "limits": limits});
        let shown = |width: usize| build_table(&json!({"tools": [row.clone()]})).format(width);
        assert_eq!(
            shown(120),
            "TOOL         CALLER    CALLS    OK  FAILED  REFUSED  CACHED     P50    P99  LIMITS\n\
             get_weather  research   1234  1200       4       30       7  0.4 ms  1.2 s  3/100 per day, 0/5 per run"
        );
        assert!(
            shown(80).lines().all(|line| line.chars().count() <= 80),
            "{}",
            shown(80)
        );
        let without = json!({"tool": "add", "caller": "anonymous", "calls": 1, "succeeded": 1, "p50_ms": null, "limits": []});
        let shown = build_table(&json!({"tools": [without]})).format(80);
        assert_eq!(
            shown,
            "TOOL  CALLER     CALLS  OK  FAILED  REFUSED  CACHED\nadd   anonymous      1   1       0        0       0"
        );
    }
}
