//! Loads the tools of a manifest without a service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use crate::call::CallSettings;
use crate::environment::Environment;
use crate::kinds::{ProcessEnv, Tool};
use crate::ledger;
use crate::manifest;
use crate::secrets::Redactor;
use crate::sources::live;
pub(crate) use crate::sources::live::SourceFindings;

/// The folder of virtual environments, beside the ledger.
const VENV_FOLDER: &str = "toolcrib-venvs";

/// The folder of virtual environments. It is beside the ledger, because the service may write
/// there.
pub(crate) fn venv_folder(ledger: &ledger::Settings) -> PathBuf {
    ledger::ledger_folder(ledger)
        .unwrap_or_default()
        .join(VENV_FOLDER)
}

/// The tools of a manifest, for a command that only shows them.
#[derive(Default)]
pub(crate) struct DeclaredTools {
    /// The manifest's own tools, then those of its sources.
    pub(crate) tools: Vec<Tool>,
    /// `calls:`
    pub(crate) calls: CallSettings,
    /// Sources without any usable tool, each with the reason.
    pub(crate) faults: Vec<String>,
    /// What misleads models in the definitions of the sources' tools.
    pub(crate) findings: Vec<SourceFindings>,
    /// Warnings about other sources and their tools.
    pub(crate) warnings: Vec<String>,
}

/// Reads a manifest and lists its sources once. Calls `on_progress` with the source and its current
/// step, if that step takes long.
pub(crate) async fn load_declared(
    path: &Path,
    environment: &Environment,
    on_progress: fn(&str, &str),
) -> Result<DeclaredTools, Error> {
    let host = manifest::Host {
        is_standalone: true,
        ..manifest::Host::default()
    };
    let mut manifest =
        manifest::load_for_host(path, &manifest::ProcessInput::new(environment), &host)
            .map_err(Error::Manifest)?;
    if let Some(file) = ledger::ledger_file(&manifest.ledger) {
        host.sandboxes
            .set_ledger(file, &venv_folder(&manifest.ledger));
    }
    for source in &mut manifest.sources {
        source
            .settings
            .set_package_dir(&venv_folder(&manifest.ledger));
    }
    let redactor = Arc::new(Redactor::new(manifest.secrets.iter().map(String::as_str)));
    let mut process_env = ProcessEnv::new(redactor.clone(), environment);
    process_env.sandboxes = host.sandboxes.clone();
    let (sources, mut tools) = (manifest.sources, manifest.tools);
    let loaded = live::list_once(sources, &tools, &process_env, on_progress).await;
    tools.extend(loaded.tools);
    let clean = |texts: Vec<String>| {
        texts
            .iter()
            .map(|text| redactor.clean_and_redact(text))
            .collect()
    };
    Ok(DeclaredTools {
        tools,
        calls: manifest.calls,
        faults: clean(loaded.faults),
        findings: loaded.findings,
        warnings: clean(loaded.warnings),
    })
}
