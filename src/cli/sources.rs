//! `toolcrib sources`: the state of the sources of a running service.

use serde_json::Value;

use super::Failure;
use super::client::{ServerArgs, print_answer};
use super::output::{OutputArgs, print_line, print_table};
use super::table::{Content, Table};
use crate::environment::Environment;
use crate::text::sanitize;

/// Arguments of `sources`.
#[derive(clap::Args)]
pub(super) struct SourcesArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: SourcesArgs, environment: &Environment) -> Result<(), Failure> {
    let answer = args
        .server
        .client_or_local(environment)?
        .get("/sources")
        .await?;
    print_answer(answer, args.output.is_for_people(), |answer| {
        print_table(&build_table(answer), "no sources", environment);
        let notes = describe_notes(answer);
        if !notes.is_empty() {
            print_line(&format!("\n{}", notes.join("\n")));
        }
    })
}

fn sources(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["sources"].as_array().into_iter().flatten()
}

fn build_table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        ("SOURCE", Content::Name),
        ("KIND", Content::Word),
        ("STATE", Content::Word),
        ("TOOLS", Content::Number),
        ("WORKERS", Content::Number),
        ("REPLACED", Content::Number),
        ("DOING", Content::Prose),
    ]);
    for source in sources(answer) {
        let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| source[key].as_u64().unwrap_or_default().to_string();
        table.add_row([
            text("name"),
            text("kind"),
            text("state"),
            number("tools"),
            number("workers"),
            number("replaced"),
            text("doing"),
        ]);
    }
    table
}

/// What the operator should know about each source, in full: these sentences do not fit into a
/// table.
fn describe_notes(answer: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for source in sources(answer) {
        let name = source["name"].as_str().unwrap_or_default();
        let mut note = |text: &str| {
            let text =
                sanitize::escape_invisible(&text.split_whitespace().collect::<Vec<_>>().join(" "));
            notes.push(format!("{name}: {text}"));
        };
        let items = |key: &str| source[key].as_array().into_iter().flatten();
        if let Some(fault) = source["fault"].as_str() {
            note(fault);
        }
        for warning in items("warnings").filter_map(Value::as_str) {
            note(&format!("warning: {warning}"));
        }
        // Hints are many, and only the author of a tool can judge them.
        for finding in items("findings").filter(|finding| finding["hint"] != true) {
            let text = |key: &str| finding[key].as_str().unwrap_or_default();
            note(&format!(
                "warning: {}: {} [{}]",
                text("tool"),
                text("message"),
                text("rule")
            ));
        }
        for stopped in items("stopped") {
            let text = |key: &str| stopped[key].as_str().unwrap_or_default();
            note(&format!(
                "`{}` is quarantined: {}",
                text("tool"),
                text("why")
            ));
        }
        let operations = &source["operations"];
        let left_out = operations["left_out"].as_array().map_or(0, Vec::len);
        if left_out > 0 {
            note(&format!(
                "{left_out} of {} operations are left out; --format json says why",
                operations["found"]
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_and_notes_are_shown() {
        let answer = json!({"sources": [
            {"name": "lib", "kind": "python", "state": "up", "tools": 6, "workers": 1, "replaced": 0, "doing": null, "fault": null,
             "warnings": ["`a` has no\ndescription"], "stopped": [], "operations": null},
            {"name": "shop", "kind": "openapi", "state": "failed", "tools": 0, "workers": 0, "replaced": 0, "fault": "no answer",
             "findings": [{"tool": "x", "message": "m", "rule": "r"}, {"tool": "y", "message": "m", "rule": "r", "hint": true}],
             "stopped": [{"tool": "t", "why": "its text"}], "operations": {"found": 3, "imported": 1, "left_out": [{}, {}]}}]});
        assert_eq!(
            build_table(&answer).format(80),
            "SOURCE  KIND     STATE   TOOLS  WORKERS  REPLACED\n\
             lib     python   up          6        1         0\n\
             shop    openapi  failed      0        0         0"
        );
        assert_eq!(
            describe_notes(&answer),
            [
                "lib: warning: `a` has no description",
                "shop: no answer",
                "shop: warning: x: m [r]",
                "shop: `t` is quarantined: its text",
                "shop: 2 of 3 operations are left out; --format json says why"
            ]
        );
    }
}
