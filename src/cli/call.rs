//! `toolcrib call`: one call, in this process or on a running server.

use std::io::Read as _;

use serde_json::{Value, json};

use super::arguments::ManifestArg;
use super::client::{ServerArgs, invoke};
use super::{Failure, print_json};
use crate::call::IdempotencyKey;
use crate::call::json::parse_strict;
use crate::http;
use crate::log::CallLog;

/// Arguments of `call`.
#[derive(clap::Args)]
pub(super) struct CallArgs {
    /// The tool.
    name: String,
    /// Its arguments as a JSON object; `-` reads them from standard input.
    #[arg(default_value = "{}")]
    json: String,
    /// The caller's own name for this call: with the same one it is not run twice.
    #[arg(long, value_parser = idempotency_key, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
    #[command(flatten)]
    manifest: ManifestArg,
    #[command(flatten)]
    server: ServerArgs,
    /// Where the ledger is when the call runs in this process.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    ledger: Option<String>,
    /// Go on although that ledger has lost acknowledged commits.
    #[arg(long)]
    accept_loss: bool,
}

/// Prints the answer or the problem; succeeds when the tool ran and did not say no.
pub(super) async fn call(args: CallArgs) -> Result<(), Failure> {
    let arguments = read(&args.json)?;
    if let Some(server) = &args.server.server {
        let path = format!(
            "/tools/{}/invoke",
            percent_encoding::utf8_percent_encode(&args.name, percent_encoding::NON_ALPHANUMERIC)
        );
        let (status, answer) =
            invoke(&args.server, server, &path, &json!({"arguments": arguments}), args.idempotency_key.as_ref())
                .await?;
        print_json(&answer);
        return if status.is_success() && answer["is_error"] == json!(false) { Ok(()) } else { Err(Failure::No) };
    }
    let mut builder = args.manifest.builder()?;
    if let Some(ledger) = args.ledger {
        builder = builder.ledger(ledger);
    }
    if args.accept_loss {
        builder = builder.accept_loss();
    }
    // The answer is what was asked for.
    let app = builder.call_log(CallLog::off()).build().await?;
    let (answer, ok) = tokio::select! {
        answered = http::call_in_process(app.registry(), &args.name, arguments, args.idempotency_key) => answered,
        stopped = app.stopped() => {
            stopped?;
            // What runs is ended with the call, and the row says so.
            app.registry().shared().running.cancel_all();
            app.close().await;
            return Err(Failure::Failed("toolcrib: stopped".into()));
        }
    };
    app.close().await;
    print_json(&answer);
    if ok { Ok(()) } else { Err(Failure::No) }
}

fn idempotency_key(text: &str) -> Result<IdempotencyKey, String> {
    IdempotencyKey::parse(text.as_bytes()).map_err(|why| format!("a key {why}"))
}

fn read(text: &str) -> Result<Value, Failure> {
    let mut input = String::new();
    let text = if text == "-" {
        let read = std::io::stdin().read_to_string(&mut input);
        read.map_err(|error| Failure::Failed(format!("toolcrib: standard input cannot be read: {error}")))?;
        input.as_str()
    } else {
        text
    };
    match parse_strict(text.as_bytes()) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Failure::Usage("the arguments are a JSON object, e.g. '{\"expression\": \"6*7\"}'".into())),
        Err(error) => Err(Failure::Usage(format!("the arguments are not JSON: {error}"))),
    }
}
