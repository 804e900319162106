//! `toolcrib call`: runs one call, or the calls of a model's message, in this process or on a
//! running server.

mod arguments;
mod request;

use clap::builder::PossibleValuesParser;
use toolcrib_dialect::Dialect;

use self::request::CallRequest;
use super::Failure;
use super::client::ServerArgs;
use super::manifest_file::{ManifestArg, log_demo};
use super::output::print_json;
use crate::call::IdempotencyKey;
use crate::environment::Environment;
use crate::log::CallLog;

/// Arguments of `call`.
#[derive(clap::Args)]
pub(super) struct CallArgs {
    /// The tool; `-` reads a model's message from standard input, in any dialect, and runs the
    /// calls in it.
    name: String,
    /// Its arguments: `key=value` for each, or one JSON object; `-` reads the object from standard
    /// input. A value is a text if the tool takes a text there, else JSON; `key:=value` is always
    /// JSON.
    #[arg(value_name = "KEY=VALUE | JSON")]
    arguments: Vec<String>,
    /// The dialect of the message. By default, it is guessed.
    #[arg(long, value_parser = PossibleValuesParser::new(Dialect::names()))]
    dialect: Option<String>,
    /// The agent run to which the calls of the message belong.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The caller's name for this call or message. A repetition with the same name does not run
    /// again.
    #[arg(long, value_parser = parse_idempotency_key, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
    #[command(flatten)]
    manifest: ManifestArg,
    #[command(flatten)]
    server: ServerArgs,
    /// The ledger, if the call runs in this process: a file, sqlite://FILE or postgres://USER@HOST/DATABASE.
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
    let (answer, ok) = match args.server.client()? {
        Some(client) => request.run_on_server(&client, key.as_ref()).await?,
        None => {
            if args.manifest.path()?.is_none() {
                log_demo();
            }
            let mut builder = args.manifest.app_builder(environment)?;
            if let CallRequest::Tool { name, .. } = &request {
                builder = builder.only_tool(name);
            }
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
    if ok {
        Ok(())
    } else {
        Err(Failure::NegativeResult)
    }
}

fn parse_idempotency_key(text: &str) -> Result<IdempotencyKey, String> {
    IdempotencyKey::parse(text.as_bytes()).map_err(|why| format!("a key {why}"))
}
