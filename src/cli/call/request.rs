//! The calls to run, in this process or on a server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Failure;
use super::super::client::{Client, encode_segment};
use super::super::output::print_note;
use super::CallArgs;
use super::arguments::{WrittenArguments, read_stdin};
use crate::app::App;
use crate::call::{Caller, IdempotencyKey};
use crate::catalog::registry::Registry;
use crate::http;

/// The calls to run.
pub(super) enum CallRequest {
    /// One tool with these arguments.
    Tool {
        name: String,
        arguments: WrittenArguments,
    },
    /// The calls in a model's message.
    Message {
        text: String,
        dialect: Option<String>,
        run_id: Option<String>,
    },
}

impl CallRequest {
    pub(super) fn from_args(args: &CallArgs) -> Result<Self, Failure> {
        let CallArgs {
            name,
            arguments,
            dialect,
            run_id,
            ..
        } = args;
        if name == "-" {
            if !arguments.is_empty() {
                return Err(Failure::Usage(
                    "`-` takes no arguments: the message is read from standard input".into(),
                ));
            }
            return Ok(Self::Message {
                text: read_stdin()?,
                dialect: dialect.clone(),
                run_id: run_id.clone(),
            });
        }
        if dialect.is_some() || run_id.is_some() {
            return Err(Failure::Usage(
                "--dialect and --run-id are for a model's message: toolcrib call -".into(),
            ));
        }
        Ok(Self::Tool {
            name: name.clone(),
            arguments: WrittenArguments::from_words(arguments)?,
        })
    }

    pub(super) async fn run_on_server(
        self,
        client: &Client,
        key: Option<&IdempotencyKey>,
    ) -> Result<(Value, bool), Failure> {
        match self {
            Self::Tool { name, arguments } => {
                let path = format!("/tools/{}", encode_segment(&name));
                // If the tool cannot be read, the call itself says why.
                let schema = match arguments.needs_schema() {
                    true => client.get(&path).await?.1["input_schema"].take(),
                    false => Value::Null,
                };
                let body = json!({"arguments": arguments.complete(&schema)?});
                let (status, answer) = client
                    .invoke_tool(&format!("{path}/invoke"), &body, key)
                    .await?;
                let ok = status.is_success() && is_success(&answer);
                Ok((answer, ok))
            }
            Self::Message {
                text,
                dialect,
                run_id,
            } => {
                let options = [("dialect", &dialect), ("run_id", &run_id)];
                let (status, answer) = client.send_message(options, text, key).await?;
                let all = answer["results"]
                    .as_array()
                    .is_some_and(|results| results.iter().all(is_success));
                Ok((answer, status.is_success() && all))
            }
        }
    }

    pub(super) async fn run_in_process(
        self,
        app: App,
        key: Option<IdempotencyKey>,
    ) -> Result<(Value, bool), Failure> {
        let registry = app.registry().clone();
        let work = async {
            match &self {
                Self::Tool { name, .. } => wait_for_tool(&app, name).await,
                Self::Message { .. } => app.wait_for_sources().await,
            }
            for source in app.sources() {
                if let Some(fault) = source.fault {
                    print_note(&format!("source `{}` failed: {fault}", source.name));
                }
            }
            match self {
                Self::Tool { name, arguments } => {
                    let arguments = arguments.complete(&input_schema(&registry, &name))?;
                    Ok(http::call_in_process(&registry, &name, arguments, key).await)
                }
                Self::Message {
                    text,
                    dialect,
                    run_id,
                } => Ok(http::calls_in_process(&registry, &text, dialect, run_id, key).await),
            }
        };
        let result = tokio::select! {
            answered = work => Ok(answered),
            stopped = app.wait_for_stop() => {
                // Running tools end with the call, and the ledger's row records that.
                registry.shared().in_flight_calls.cancel_all();
                Err(stopped)
            }
        };
        app.close().await;
        match result {
            Ok(answered) => answered,
            Err(stopped) => {
                stopped?;
                Err(Failure::Failed("toolcrib: stopped".into()))
            }
        }
    }
}

/// Waits until the tool of this name can be called, or every source was listed. A tool that calls
/// other tools needs these, too.
async fn wait_for_tool(app: &App, name: &str) {
    let registry = app.registry();
    let mut changes = registry.watch_changes();
    let is_there = || {
        let entry = registry.get(name);
        entry.is_some_and(|entry| entry.is_available() && !entry.rules.runner.traits().calls_tools)
    };
    let all_listed = app.wait_for_sources();
    tokio::pin!(all_listed);
    while !is_there() {
        tokio::select! {
            () = &mut all_listed => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Whether an answer is a result without an error. A problem is not.
fn is_success(answer: &Value) -> bool {
    answer["is_error"] == json!(false)
}

/// The input schema of a tool of this process; null if there is no such tool, which the call itself
/// explains.
fn input_schema(registry: &Registry, name: &str) -> Arc<Value> {
    let catalog = registry.catalog();
    let found = catalog.resolve(name, &Caller::anonymous());
    found
        .map(|(entry, _)| entry.definition.input_schema.clone())
        .unwrap_or_default()
}
