//! `toolcrib call`: runs one call, or the calls of a model's message, in this process or on a running server.

use std::io::{Read as _, Write as _};

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::arguments::ManifestArg;
use super::client::{ServerArgs, invoke_tool, send_message};
use super::{Failure, print_json};
use crate::app::App;
use crate::call::IdempotencyKey;
use crate::call::json::parse_strict;
use crate::dialect::Dialect;
use crate::environment::Environment;
use crate::http;
use crate::log::CallLog;

/// Arguments of `call`.
#[derive(clap::Args)]
pub(super) struct CallArgs {
    /// The tool; `-` reads a model's message from standard input, in any dialect, and runs the calls in it.
    name: String,
    /// Its arguments as a JSON object (none: `{}`); `-` reads them from standard input.
    json: Option<String>,
    /// The dialect of the message. By default, it is guessed.
    #[arg(long, value_parser = PossibleValuesParser::new(Dialect::ALL.map(Dialect::as_str)))]
    dialect: Option<String>,
    /// The agent run to which the calls of the message belong.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The caller's name for this call or message. A repetition with the same name does not run again.
    #[arg(long, value_parser = parse_idempotency_key, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
    #[command(flatten)]
    manifest: ManifestArg,
    #[command(flatten)]
    server: ServerArgs,
    /// The ledger, if the call runs in this process: sqlite://FILE.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    ledger: Option<String>,
    /// Continue although that ledger has lost acknowledged commits.
    #[arg(long)]
    accept_loss: bool,
}

impl CallArgs {
    /// Whether the tool runs in this process.
    pub(super) fn runs_in_process(&self) -> bool {
        self.server.server.is_none()
    }
}

/// Prints the answer or the problem. Succeeds if all calls ran without an error result.
pub(super) async fn run(args: CallArgs, environment: &Environment) -> Result<(), Failure> {
    let request = CallRequest::from_args(&args)?;
    let key = args.idempotency_key;
    let (answer, ok) = match &args.server.server {
        Some(server) => request.run_on_server(&args.server, server, key.as_ref()).await?,
        None => {
            let mut builder = args.manifest.app_builder(environment)?;
            if let Some(ledger) = args.ledger {
                builder = builder.ledger(ledger);
            }
            if args.accept_loss {
                builder = builder.accept_loss();
            }
            // The output of this command is the answer, so calls are not logged.
            let app = builder.call_log(CallLog::off()).build().await?;
            request.run_in_process(app, key).await?
        }
    };
    print_json(&answer);
    if ok { Ok(()) } else { Err(Failure::NegativeResult) }
}

/// The calls to run.
enum CallRequest {
    /// One tool with these arguments.
    Tool { name: String, arguments: Value },
    /// The calls in a model's message.
    Message { text: String, dialect: Option<String>, run_id: Option<String> },
}

impl CallRequest {
    fn from_args(args: &CallArgs) -> Result<Self, Failure> {
        let CallArgs { name, json, dialect, run_id, .. } = args;
        if name == "-" {
            if json.is_some() {
                return Err(Failure::Usage("`-` takes no arguments: the message is read from standard input".into()));
            }
            return Ok(Self::Message { text: read_stdin()?, dialect: dialect.clone(), run_id: run_id.clone() });
        }
        if dialect.is_some() || run_id.is_some() {
            return Err(Failure::Usage("--dialect and --run-id are for a model's message: toolcrib call -".into()));
        }
        let arguments = match json.as_deref() {
            None => json!({}),
            Some("-") => parse_arguments(&read_stdin()?)?,
            Some(text) => parse_arguments(text)?,
        };
        Ok(Self::Tool { name: name.clone(), arguments })
    }

    async fn run_on_server(
        self,
        args: &ServerArgs,
        server: &str,
        key: Option<&IdempotencyKey>,
    ) -> Result<(Value, bool), Failure> {
        match self {
            Self::Tool { name, arguments } => {
                let name = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC);
                let (path, body) = (format!("/tools/{name}/invoke"), json!({"arguments": arguments}));
                let (status, answer) = invoke_tool(args, server, &path, &body, key).await?;
                let ok = status.is_success() && is_success(&answer);
                Ok((answer, ok))
            }
            Self::Message { text, dialect, run_id } => {
                let options = [("dialect", dialect), ("run_id", run_id)];
                let (status, answer) = send_message(args, server, options, text, key).await?;
                let all = answer["results"].as_array().is_some_and(|results| results.iter().all(is_success));
                Ok((answer, status.is_success() && all))
            }
        }
    }

    async fn run_in_process(self, app: App, key: Option<IdempotencyKey>) -> Result<(Value, bool), Failure> {
        let registry = app.registry().clone();
        let work = async {
            app.wait_for_sources().await;
            for source in app.sources() {
                if let Some(fault) = source.fault {
                    // On standard error, so that standard output has only the answer.
                    let _ = writeln!(std::io::stderr(), "source `{}` failed: {fault}", source.name);
                }
            }
            match self {
                Self::Tool { name, arguments } => http::call_in_process(&registry, &name, arguments, key).await,
                Self::Message { text, dialect, run_id } => {
                    http::calls_in_process(&registry, &text, dialect, run_id, key).await
                }
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
        result.or_else(|stopped| {
            stopped?;
            Err(Failure::Failed("toolcrib: stopped".into()))
        })
    }
}

/// Whether an answer is a result without an error. A problem is not.
fn is_success(answer: &Value) -> bool {
    answer["is_error"] == json!(false)
}

fn parse_idempotency_key(text: &str) -> Result<IdempotencyKey, String> {
    IdempotencyKey::parse(text.as_bytes()).map_err(|why| format!("a key {why}"))
}

fn read_stdin() -> Result<String, Failure> {
    let mut input = String::new();
    let read = std::io::stdin().read_to_string(&mut input);
    read.map_err(|error| Failure::Failed(format!("toolcrib: standard input cannot be read: {error}")))?;
    Ok(input)
}

fn parse_arguments(text: &str) -> Result<Value, Failure> {
    match parse_strict(text.as_bytes()) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Failure::Usage("the arguments are a JSON object, e.g. '{\"expression\": \"6*7\"}'".into())),
        Err(error) => Err(Failure::Usage(format!("the arguments are not JSON: {error}"))),
    }
}
