//! What a service is made of besides its manifest, and reading that.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::seen::{Recorder, Seen};
use crate::environment::Environment;
use crate::manifest::{self, DeclaredSource, Finding, Host, Manifest, Place};
use crate::tool_pattern::{ToolPattern, any_denies};
use crate::tools::{BuildError, OwnPorts, Tool};

/// What stays the same while manifests come and go.
#[derive(Default)]
pub struct Plan {
    /// Where the manifest is.
    pub manifest: Option<PathBuf>,
    /// The program's own tools; an entry of the manifest may take one over.
    pub program: Vec<Tool>,
    /// The program's own sources.
    pub sources: Vec<DeclaredSource>,
    /// The variables that the program was started with.
    pub environment: Environment,
    /// Where virtual environments are kept.
    pub venvs: PathBuf,
    /// Tools that one of these means are off.
    pub(crate) deny: Vec<ToolPattern>,
    /// No program adds tools or sources.
    pub(crate) is_alone: bool,
    /// Where the service listens, once it does.
    pub(crate) own: OwnPorts,
    /// Somebody said in so many words that no callers are needed.
    pub allow_open: bool,
    /// Where to listen, when that was given outside the manifest.
    pub listen: Option<String>,
    /// The ledger was given outside the manifest.
    pub ledger_given: bool,
}

/// A manifest, or what is wrong with it, and the files that said so.
pub(crate) struct Reading {
    pub(crate) outcome: Result<Manifest, Vec<Finding>>,
    pub(crate) seen: Seen,
}

impl Plan {
    /// Reads the manifest; without one, what goes without saying.
    pub(crate) fn read(&self) -> Reading {
        let Some(path) = &self.manifest else {
            return Reading { outcome: Ok(Manifest::default()), seen: Seen::default() };
        };
        let natives: HashMap<String, Tool> =
            self.program.iter().map(|tool| (tool.name().to_owned(), tool.clone())).collect();
        let recorder = Recorder::new(&self.environment);
        let host = Host { natives: Some(&natives), is_alone: self.is_alone, own: self.own.clone() };
        let outcome = manifest::load_for(path, &recorder, &host).and_then(|manifest| self.not_itself(manifest));
        Reading { outcome, seen: recorder.seen() }
    }

    /// What can be told of the manifest alone was told when it was loaded.
    fn not_itself(&self, manifest: Manifest) -> Result<Manifest, Vec<Finding>> {
        let listen = self.listen.as_ref().unwrap_or(&manifest.listen);
        let found = manifest::mounted(&manifest, listen).map(|(name, message)| {
            let file = self.manifest.as_deref().unwrap_or(Path::new("")).into();
            Finding::error(Place { file, line: 1, column: 1 }, format!("mcp_servers.{name}.url"), message)
        });
        let found: Vec<Finding> = found.collect();
        if found.is_empty() { Ok(manifest) } else { Err(found) }
    }

    /// Reads it while the service runs. Then an empty file is a fault: it would take every tool and every caller away,
    /// and it is what a file looks like that is just being written.
    pub(super) fn read_again(&self) -> Reading {
        let mut reading = self.read();
        if let Some(path) = self.manifest.as_deref().filter(|path| reading.seen.is_blank(path)) {
            let place = Place { file: path.into(), line: 1, column: 1 };
            let message = "is empty; to serve nothing at all, stop the service";
            reading.outcome = Err(vec![Finding::error(place, "", message)]);
        }
        reading
    }

    /// The tools of program and manifest, with the values of the variables that they declare. `taken` are those of the
    /// program that entries of the manifest have taken over.
    pub(super) fn tools(&self, declared: Vec<Tool>, taken: &[String]) -> Result<Vec<Tool>, BuildError> {
        let own = self.program.iter().filter(|tool| !taken.iter().any(|name| name == tool.name())).cloned();
        own.chain(declared).map(|tool| Ok(self.admit(tool.with_variables(&self.environment)?))).collect()
    }

    /// The tool, off if it is to be.
    pub(super) fn admit(&self, mut tool: Tool) -> Tool {
        self.deny(&mut tool);
        tool
    }

    /// Switches the tool off if it is to be.
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
