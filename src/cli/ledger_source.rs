//! The ledger that a command reads without a service. Of the manifest only the ledger's address is
//! read, so no other secret needs to be set.

use std::path::PathBuf;
use std::sync::Arc;

use super::Failure;
use super::manifest_file::ManifestArg;
use crate::app::Error;
use crate::environment::Environment;
use crate::ledger::{self, Ledger};
use crate::manifest::{self, Manifest, ProcessInput};

/// Where the ledger is.
#[derive(clap::Args)]
pub(super) struct LedgerArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    /// The file of the ledger, or sqlite://FILE. By default, the ledger of the manifest, as for
    /// `serve`.
    #[arg(long, env = "TOOLCRIB_LEDGER")]
    pub(super) ledger: Option<String>,
}

impl LedgerArgs {
    /// The ledger that `serve` would open here.
    pub(super) fn settings(&self, environment: &Environment) -> Result<ledger::Settings, Failure> {
        if let Some(url) = &self.ledger {
            return Ok(ledger_at(url));
        }
        let Some(path) = self.manifest.path()? else {
            return Ok(Manifest::default().ledger);
        };
        manifest::read_ledger_address(&path, &ProcessInput::new(environment)).map_err(|findings| {
            let errors = Error::Manifest(findings);
            Failure::Usage(format!(
                "{errors}\n--ledger names a ledger without the manifest"
            ))
        })
    }

    /// Opens it for reading only.
    pub(super) async fn open(&self, environment: &Environment) -> Result<Arc<dyn Ledger>, Failure> {
        Ok(ledger::open_read_only(&self.settings(environment)?).await?)
    }
}

/// The settings of the ledger with this address.
pub(super) fn ledger_at(url: &str) -> ledger::Settings {
    ledger::Settings {
        url: url.to_owned(),
        base: PathBuf::new(),
        ..Manifest::default().ledger
    }
}
