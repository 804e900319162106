//! Loads the tools of a manifest without a service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use crate::call::CallSettings;
use crate::environment::Environment;
use crate::live::{self, LoadOutcome};
use crate::manifest::{self, Manifest};
use crate::secrets::Redactor;
use crate::tools::{ProcessEnv, Tool};
use crate::{ledger, sanitize};

/// The folder of virtual environments, beside the ledger.
const VENVS: &str = "toolcrib-venvs";

/// The folder of virtual environments. It is beside the ledger, because the service may write there.
pub(super) fn venvs(ledger: &ledger::Settings) -> PathBuf {
    ledger::folder(ledger).unwrap_or_default().join(VENVS)
}

/// The tools of a manifest, for a command that only shows them.
pub(crate) struct Declared {
    /// The manifest's own tools, then those of its sources.
    pub(crate) tools: Vec<Tool>,
    /// `calls:`
    pub(crate) calls: CallSettings,
    /// Sources without any usable tool, each with the reason.
    pub(crate) faults: Vec<String>,
}

/// Reads a manifest and lists its sources once. `told` is called with the source and its current step if that step
/// takes long.
pub(crate) async fn declared(path: &Path, environment: &Environment, told: fn(&str, &str)) -> Result<Declared, Error> {
    let host = manifest::Host { is_alone: true, ..manifest::Host::default() };
    let manifest = manifest::load_for(path, &manifest::Process::new(environment), &host).map_err(Error::Manifest)?;
    let Manifest { mut tools, mut sources, calls, ledger, secrets, .. } = manifest;
    for source in &mut sources {
        source.settings.keep_venvs_in(&venvs(&ledger));
    }
    let redactor = Arc::new(Redactor::new(secrets.iter().map(String::as_str)));
    let surroundings = ProcessEnv::new(redactor.clone(), environment);
    let LoadOutcome { tools: brought, faults } = live::once(sources, &tools, &surroundings, told).await;
    tools.extend(brought);
    let faults = faults.iter().map(|fault| redactor.text(&sanitize::text(fault)).into_owned()).collect();
    Ok(Declared { tools, calls, faults })
}
