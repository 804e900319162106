//! What stays the same for the whole run of a service, and reading its manifest.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::file_snapshot::{FileSnapshot, Recorder};
use crate::environment::Environment;
use crate::manifest::{self, DeclaredSource, Finding, Host, Manifest, Place};
use crate::tool_pattern::{ToolPattern, any_denies};
use crate::tools::{BuildError, OwnPorts, Tool};

/// Settings and tools that do not change when the manifest changes.
#[derive(Default)]
pub struct Plan {
    /// Path of the manifest; `None`: there is no manifest.
    pub manifest: Option<PathBuf>,
    /// The program's own tools. An entry of the manifest may take a tool over.
    pub program: Vec<Tool>,
    /// The program's own sources.
    pub sources: Vec<DeclaredSource>,
    /// The environment variables at the start of the program.
    pub environment: Environment,
    /// The folder for virtual environments.
    pub venvs: PathBuf,
    /// Tools that match one of these patterns are switched off.
    pub(crate) deny: Vec<ToolPattern>,
    /// No program adds tools or sources.
    pub(crate) is_alone: bool,
    /// The ports of the service, after it has bound them.
    pub(crate) own: OwnPorts,
    /// The operator has explicitly permitted a service without callers.
    pub allow_open: bool,
    /// The address to listen on, if it was given outside the manifest.
    pub listen: Option<String>,
    /// The ledger was given outside the manifest.
    pub ledger_given: bool,
}

/// A manifest or its errors, with the files that were read.
pub(crate) struct ManifestReading {
    pub(crate) outcome: Result<Manifest, Vec<Finding>>,
    pub(crate) seen: FileSnapshot,
}

impl Plan {
    /// Reads the manifest. Without a manifest, returns the defaults.
    pub(crate) fn read(&self) -> ManifestReading {
        let Some(path) = &self.manifest else {
            return ManifestReading { outcome: Ok(Manifest::default()), seen: FileSnapshot::default() };
        };
        let natives: HashMap<String, Tool> =
            self.program.iter().map(|tool| (tool.name().to_owned(), tool.clone())).collect();
        let recorder = Recorder::new(&self.environment);
        let host = Host { natives: Some(&natives), is_alone: self.is_alone, own: self.own.clone() };
        let outcome = manifest::load_for(path, &recorder, &host).and_then(|manifest| self.not_itself(manifest));
        ManifestReading { outcome, seen: recorder.seen() }
    }

    /// Checks that no MCP server of the manifest is this service itself. The check needs the address that the service
    /// really listens on, which may come from outside the manifest. So the loader cannot do it.
    fn not_itself(&self, manifest: Manifest) -> Result<Manifest, Vec<Finding>> {
        let listen = self.listen.as_ref().unwrap_or(&manifest.listen);
        let found = manifest::mounted(&manifest, listen).map(|(name, message)| {
            let file = self.manifest.as_deref().unwrap_or(Path::new("")).into();
            Finding::error(Place { file, line: 1, column: 1 }, format!("mcp_servers.{name}.url"), message)
        });
        let found: Vec<Finding> = found.collect();
        if found.is_empty() { Ok(manifest) } else { Err(found) }
    }

    /// Reads the manifest while the service runs. Here an empty file is an error: it would remove all tools and
    /// callers, and a file looks empty while it is being written.
    pub(super) fn read_again(&self) -> ManifestReading {
        let mut reading = self.read();
        if let Some(path) = self.manifest.as_deref().filter(|path| reading.seen.is_blank(path)) {
            let place = Place { file: path.into(), line: 1, column: 1 };
            let message = "is empty; to serve nothing at all, stop the service";
            reading.outcome = Err(vec![Finding::error(place, "", message)]);
        }
        reading
    }

    /// The tools of program and manifest, with the values of the variables that they declare. `taken` names the
    /// program's tools that entries of the manifest have taken over.
    pub(super) fn tools(&self, declared: Vec<Tool>, taken: &[String]) -> Result<Vec<Tool>, BuildError> {
        let own = self.program.iter().filter(|tool| !taken.iter().any(|name| name == tool.name())).cloned();
        own.chain(declared).map(|tool| Ok(self.admit(tool.with_variables(&self.environment)?))).collect()
    }

    /// Returns the tool, switched off if a `deny` pattern matches it.
    pub(super) fn admit(&self, mut tool: Tool) -> Tool {
        self.deny(&mut tool);
        tool
    }

    /// Switches the tool off if a `deny` pattern matches it.
    pub(super) fn deny(&self, tool: &mut Tool) {
        let is_denied = any_denies(&self.deny, tool.definition.names(), |_| false);
        tool.policy.enabled &= !is_denied;
    }

    /// The sources of program and manifest.
    pub(super) fn sources(&self, declared: Vec<DeclaredSource>) -> Result<Vec<DeclaredSource>, BuildError> {
        let mut all = self.sources.clone();
        for mut one in declared {
            one.settings.keep_venvs_in(&self.venvs);
            all.push(one);
        }
        let mut names = HashSet::new();
        match all.iter().find(|one| !names.insert(one.name())) {
            Some(twice) => Err(BuildError::DuplicateSource(twice.name().to_owned())),
            None => Ok(all),
        }
    }
}
