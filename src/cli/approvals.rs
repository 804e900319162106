//! `toolcrib approvals`: lists the calls that wait for a person, and decides about them.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::Failure;
use super::client::{ServerArgs, encode_segment, print_answer};
use super::durations::format_age;
use super::operate::CallList;
use super::output::{OutputArgs, print_line, print_table};
use super::table::{Content, Table};
use crate::call::Clock;
use crate::environment::Environment;
use crate::text::sanitize;

/// Decides about calls that wait for a person.
#[derive(Subcommand)]
pub(super) enum ApprovalsCommand {
    /// Print the calls that wait, newest first.
    List(ListArgs),
    /// Approve a call. It runs once, with the arguments that `list` shows.
    Approve(ApproveArgs),
    /// Deny a call.
    Deny(DenyArgs),
}

/// Arguments of `approvals list`.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// The state: waiting, approved, denied, expired or withdrawn.
    #[arg(long, default_value = "waiting")]
    state: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `approvals approve`.
#[derive(clap::Args)]
pub(super) struct ApproveArgs {
    /// The id of the call, or its last 12 characters.
    id: String,
    /// The reason, for the record.
    #[arg(long)]
    note: Option<String>,
    /// Arguments as a JSON object, to run the call with these instead.
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `approvals deny`.
#[derive(clap::Args)]
pub(super) struct DenyArgs {
    /// The id of the call, or its last 12 characters.
    id: String,
    /// The reason, for the record and for the model.
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(
    command: ApprovalsCommand,
    environment: &Environment,
) -> Result<(), Failure> {
    let (verdict, id, note, arguments, server, output) = match command {
        ApprovalsCommand::List(args) => return list(args, environment).await,
        ApprovalsCommand::Approve(args) => (
            "approve",
            args.id,
            args.note,
            args.arguments,
            args.server,
            args.output,
        ),
        ApprovalsCommand::Deny(args) => {
            ("deny", args.id, args.note, None, args.server, args.output)
        }
    };
    let mut body = Map::new();
    if let Some(arguments) = arguments {
        let arguments: Map<String, Value> = serde_json::from_str(&arguments)
            .map_err(|error| Failure::Usage(format!("--arguments: not a JSON object: {error}")))?;
        body.insert("arguments".into(), arguments.into());
    }
    if let Some(note) = note {
        body.insert("note".into(), note.into());
    }
    let client = server.client_or_local(environment)?;
    let waiting = CallList {
        paths: &["/approvals?state=waiting"],
        key: "approvals",
        what: "waiting call",
        command: "toolcrib approvals list",
    };
    let id = waiting.find(&client, &id, &output).await?;
    let path = format!("/invocations/{}/{verdict}", encode_segment(&id));
    let answer = client.invoke_tool(&path, &json!(body), None).await?;
    print_answer(answer, output.is_for_people(), |answer| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        print_line(&format!(
            "{}: {}, and the call is {} ({})",
            text(&answer["tool"]),
            text(&answer["approval"]["state"]),
            text(&answer["state"]),
            text(&answer["invocation_id"])
        ));
    })
}

async fn list(args: ListArgs, environment: &Environment) -> Result<(), Failure> {
    let client = args.server.client_or_local(environment)?;
    let state = encode_segment(&args.state);
    let answer = client.get(&format!("/approvals?state={state}")).await?;
    print_answer(answer, args.output.is_for_people(), |answer| {
        print_table(
            &build_table(answer),
            "no call is in this state",
            environment,
        );
    })
}

fn build_table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        ("REQUESTED", Content::Word),
        ("CALL", Content::Word),
        ("CALLER", Content::Name),
        ("TOOL", Content::Name),
        ("ARGUMENTS", Content::Prose),
        ("DECIDED BY", Content::Name),
    ]);
    let now = Clock::system().now();
    for row in answer["approvals"].as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let requested = text("requested_at").parse();
        let age = requested.map_or_else(|_| String::new(), |at| format_age(at, now));
        let arguments = match &row["arguments"] {
            Value::Null => String::new(),
            arguments => sanitize::escape_invisible(&arguments.to_string()),
        };
        table.add_row([
            age,
            text("invocation_id"),
            text("caller"),
            text("tool"),
            arguments,
            text("decided_by"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_calls_are_shown_with_their_arguments() {
        let answer = json!({"approvals": [{"requested_at": "", "invocation_id": "01", "caller": "agent", "tool": "pay",
            "arguments": {"amount": 500}, "decided_by": null}]});
        let shown = build_table(&answer).format(80);
        assert!(
            shown.contains("agent") && shown.contains("{\"amount\":500}"),
            "{shown}"
        );
    }
}
