//! What stays the same for the whole run of a service, and reading its manifest.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::file_snapshot::{FileRecorder, FileSnapshot};
use crate::access::tool_pattern::{ToolPattern, any_denies};
use crate::environment::Environment;
use crate::kinds::{BuildError, OwnPorts, Sandboxes, TokenSources, Tool};
use crate::manifest::{self, DeclaredSource, Finding, Host, Location, Manifest};

/// Settings and tools that do not change when the manifest changes.
#[derive(Default)]
pub struct ServiceConfig {
    /// Path of the manifest; `None`: there is no manifest.
    pub manifest: Option<PathBuf>,
    /// The program's own tools. An entry of the manifest may replace a tool.
    pub program_tools: Vec<Tool>,
    /// The program's own sources.
    pub program_sources: Vec<DeclaredSource>,
    /// The environment variables at the start of the program.
    pub environment: Environment,
    /// The folder for virtual environments.
    pub venv_folder: PathBuf,
    /// Tools that match one of these patterns are disabled.
    pub(crate) deny_patterns: Vec<ToolPattern>,
    /// No program adds tools or sources.
    pub(crate) manifest_only: bool,
    /// The ports of the service, after it has bound them.
    pub(crate) own_ports: OwnPorts,
    /// The access tokens of all tools. They last across reloads.
    pub(crate) token_sources: TokenSources,
    /// What the sandboxes of all programs share. It lasts across reloads.
    pub(crate) sandboxes: Sandboxes,
    /// The operator has explicitly permitted a service without callers.
    pub allow_open: bool,
    /// The address to listen on, if it was given outside the manifest.
    pub listen: Option<String>,
    /// The ledger was given outside the manifest.
    pub has_ledger_override: bool,
}

/// A manifest or its errors, with the files that were read.
pub(crate) struct ManifestReading {
    pub(crate) outcome: Result<Manifest, Vec<Finding>>,
    pub(crate) files: FileSnapshot,
}

impl ServiceConfig {
    /// Reads the manifest. Without a manifest, returns the defaults.
    pub(crate) fn read_manifest(&self) -> ManifestReading {
        let Some(path) = &self.manifest else {
            return ManifestReading {
                outcome: Ok(Manifest::default()),
                files: FileSnapshot::default(),
            };
        };
        let natives: HashMap<String, Tool> = self
            .program_tools
            .iter()
            .map(|tool| (tool.name().to_owned(), tool.clone()))
            .collect();
        let recorder = FileRecorder::new(&self.environment);
        let host = Host {
            natives: Some(&natives),
            is_standalone: self.manifest_only,
            own_ports: self.own_ports.clone(),
            token_sources: self.token_sources.clone(),
            sandboxes: self.sandboxes.clone(),
            warns_of_documents: false,
        };
        let outcome = manifest::load_for_host(path, &recorder, &host)
            .and_then(|manifest| self.refuse_own_address(manifest));
        ManifestReading {
            outcome,
            files: recorder.into_snapshot(),
        }
    }

    /// Checks that no MCP server of the manifest is this service itself. The check needs the
    /// address that the service really listens on, which may come from outside the manifest. So the
    /// loader cannot do it.
    fn refuse_own_address(&self, manifest: Manifest) -> Result<Manifest, Vec<Finding>> {
        let listen = self.listen.as_ref().unwrap_or(&manifest.listen);
        let found = manifest::self_references(&manifest, listen).map(|(name, message)| {
            let file = self.manifest.as_deref().unwrap_or(Path::new(""));
            let path = format!("mcp_servers.{name}.url");
            Finding::error(Location::start_of(file), path, message)
        });
        let found: Vec<Finding> = found.collect();
        match found.is_empty() {
            true => Ok(manifest),
            false => Err(found),
        }
    }

    /// Reads the manifest while the service runs. Here an empty file is an error: it would remove
    /// all tools and callers, and a file looks empty while it is being written.
    pub(super) fn reread_manifest(&self) -> ManifestReading {
        let mut reading = self.read_manifest();
        let path = self.manifest.as_deref();
        if let Some(path) = path.filter(|path| reading.files.is_blank(path)) {
            let location = Location::start_of(path);
            let message = "is empty; to serve nothing at all, stop the service";
            reading.outcome = Err(vec![Finding::error(location, "", message)]);
        }
        reading
    }

    /// The tools of program and manifest, with the values of the variables that they declare.
    /// `overridden` names the program's tools that entries of the manifest replace.
    pub(super) fn collect_tools(
        &self,
        declared: Vec<Tool>,
        overridden: &[String],
    ) -> Result<Vec<Tool>, BuildError> {
        let own = self
            .program_tools
            .iter()
            .filter(|tool| !overridden.iter().any(|name| name == tool.name()))
            .cloned();
        own.chain(declared)
            .map(|tool| Ok(self.with_deny_list(tool.with_env_values(&self.environment)?)))
            .collect()
    }

    /// Returns the tool, disabled if a `deny` pattern matches it.
    pub(super) fn with_deny_list(&self, mut tool: Tool) -> Tool {
        self.apply_deny_list(&mut tool);
        tool
    }

    /// Switches the tool off if a `deny` pattern matches it.
    pub(super) fn apply_deny_list(&self, tool: &mut Tool) {
        let is_denied = any_denies(&self.deny_patterns, tool.definition.names(), |_| false);
        tool.policy.enabled &= !is_denied;
    }

    /// The sources of program and manifest.
    pub(super) fn collect_sources(
        &self,
        declared: Vec<DeclaredSource>,
    ) -> Result<Vec<DeclaredSource>, BuildError> {
        let mut all = self.program_sources.clone();
        for mut source in declared {
            source.settings.set_package_dir(&self.venv_folder);
            all.push(source);
        }
        let mut names = HashSet::new();
        match all.iter().find(|source| !names.insert(source.name())) {
            Some(duplicate) => Err(BuildError::DuplicateSource(duplicate.name().to_owned())),
            None => Ok(all),
        }
    }
}
