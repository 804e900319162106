//! `toolcrib backup`: a copy of the ledger, taken while the service runs or not.

use std::path::PathBuf;

use serde_json::json;

use super::Failure;
use super::failure::unless_stopped;
use super::ledger_source::LedgerArgs;
use super::output::print_json;
use crate::environment::Environment;

/// Arguments of `backup`.
#[derive(clap::Args)]
pub(super) struct BackupArgs {
    /// The new file. An existing file is never overwritten.
    to: PathBuf,
    #[command(flatten)]
    ledger: LedgerArgs,
}

/// Copies the ledger, and prints the path and the size of the copy.
pub(super) async fn run(args: BackupArgs, environment: &Environment) -> Result<(), Failure> {
    let copied = async {
        let ledger = args.ledger.open(environment).await?;
        Ok::<_, Failure>(ledger.backup(&args.to).await?)
    };
    let bytes = unless_stopped(copied, "toolcrib: stopped").await??;
    print_json(&json!({"backup": args.to.display().to_string(), "bytes": bytes}));
    Ok(())
}
