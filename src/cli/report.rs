//! `toolcrib usage` and `toolcrib invocations`: print the content of the ledger, from a running server or from its
//! file.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::{ServerArgs, get_json};
use super::{Failure, print_json};
use crate::http::{InvocationView, ToolUsage};
use crate::ledger::{self, Query, State};
use crate::manifest::DEFAULT_LEDGER;

/// Where to read.
#[derive(clap::Args)]
pub(super) struct LedgerSource {
    #[command(flatten)]
    server: ServerArgs,
    /// The ledger to read if no server is given: sqlite://FILE.
    #[arg(long, env = "TOOLCRIB_LEDGER", conflicts_with = "server")]
    ledger: Option<String>,
}

impl LedgerSource {
    async fn open_ledger(&self) -> Result<std::sync::Arc<dyn ledger::Ledger>, Failure> {
        let url = self.ledger.clone().unwrap_or_else(|| DEFAULT_LEDGER.into());
        let durability = ledger::Durability::default();
        let settings = ledger::Settings {
            url,
            base: PathBuf::new(),
            durability,
            retention: None,
            max_bytes: None,
            accept_loss: false,
        };
        ledger::open_read_only(&settings).await.map_err(|error| Failure::Failed(format!("toolcrib: {error}")))
    }
}

/// Arguments of `invocations`.
#[derive(clap::Args)]
pub(super) struct InvocationArgs {
    #[command(flatten)]
    source: LedgerSource,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only calls of this caller.
    #[arg(long)]
    caller: Option<String>,
    /// Only calls of this run.
    #[arg(long)]
    run_id: Option<String>,
    /// Only calls in this state.
    #[arg(long)]
    state: Option<String>,
    /// Maximum number of calls.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

async fn print_from_server(from: &ServerArgs, server: &str, path: &str) -> Result<(), Failure> {
    let (status, answer) = get_json(from, server, path).await?;
    print_json(&answer);
    if status.is_success() { Ok(()) } else { Err(Failure::NegativeResult) }
}

pub(super) async fn print_usage(source: LedgerSource) -> Result<(), Failure> {
    if let Some(server) = &source.server.server {
        return print_from_server(&source.server, server, "/usage").await;
    }
    let ledger = source.open_ledger().await?;
    let rows = ledger.usage_totals(None).await.map_err(|error| Failure::Failed(format!("toolcrib: {error}")))?;
    let tools: Vec<ToolUsage> = rows.into_iter().map(ToolUsage::from).collect();
    print_json(&json!({"tools": tools}));
    Ok(())
}

pub(super) async fn print_invocations(args: InvocationArgs) -> Result<(), Failure> {
    if let Some(server) = &args.source.server.server {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &args.limit.to_string());
        for (name, value) in
            [("tool", &args.tool), ("caller", &args.caller), ("run_id", &args.run_id), ("state", &args.state)]
        {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        return print_from_server(&args.source.server, server, &format!("/invocations?{}", query.finish())).await;
    }
    let state = match args.state.as_deref() {
        Some(word) => {
            Some(State::from_name(word).ok_or_else(|| Failure::Usage(format!("--state: there is no state `{word}`")))?)
        }
        None => None,
    };
    let query = Query {
        tool: args.tool,
        caller: args.caller,
        run_id: args.run_id,
        state,
        limit: args.limit + 1,
        ..Query::default()
    };
    let ledger = args.source.open_ledger().await?;
    let mut rows = ledger.list_calls(&query).await.map_err(|error| Failure::Failed(format!("toolcrib: {error}")))?;
    let more = rows.len() > args.limit as usize;
    rows.truncate(args.limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let views: Vec<Value> = rows.iter().map(|row| json!(InvocationView::from(row))).collect();
    print_json(&json!({"invocations": views, "next_cursor": next}));
    Ok(())
}
