//! `toolcrib backup`: a copy of the ledger, taken while the service runs or not.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::json;

use super::arguments::ManifestArg;
use super::{Failure, print_json};
use crate::app::{self, Error};
use crate::environment::Environment;
use crate::ledger;
use crate::manifest::{self, Manifest, ProcessInput};

/// Arguments of `backup`.
#[derive(clap::Args)]
pub(super) struct BackupArgs {
    /// The new file. An existing file is never overwritten.
    to: PathBuf,
    #[command(flatten)]
    manifest: ManifestArg,
    /// The ledger: sqlite://FILE. By default, the ledger of the manifest, as for `serve`.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    ledger: Option<String>,
}

/// Copies the ledger, and prints the path and the size of the copy.
pub(super) async fn run(args: BackupArgs, environment: &Environment) -> Result<(), Failure> {
    let settings = ledger_settings(&args, environment)?;
    let failed = |error: ledger::Error| Failure::from(Error::Ledger(error));
    let copied = async {
        let ledger = ledger::open_read_only(&settings).await.map_err(failed)?;
        ledger.backup(&args.to).await.map_err(failed)
    };
    let bytes = tokio::select! {
        copied = copied => copied?,
        stopped = app::wait_for_stop() => {
            stopped?;
            return Err(Failure::Failed("toolcrib: stopped".into()));
        }
    };
    print_json(&json!({"backup": args.to.display().to_string(), "bytes": bytes}));
    Ok(())
}

/// The ledger that `serve` would open here.
fn ledger_settings(args: &BackupArgs, environment: &Environment) -> Result<ledger::Settings, Failure> {
    let named = match (&args.ledger, args.manifest.path()) {
        (Some(_), _) | (None, None) => Manifest::default().ledger,
        (None, Some(path)) => match manifest::load(&path, &ProcessInput::new(environment), &HashMap::new()) {
            Ok(manifest) => manifest.ledger,
            Err(findings) => {
                let errors = Error::Manifest(findings);
                return Err(Failure::Usage(format!("{errors}\nuse --ledger to back up without the manifest")));
            }
        },
    };
    Ok(match &args.ledger {
        Some(url) => ledger::Settings { url: url.clone(), base: PathBuf::new(), ..named },
        None => named,
    })
}
