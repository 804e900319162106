//! From settings to a source: the one place that knows all kinds of them.

use std::path::Path;
use std::sync::Arc;

use super::mcp::{Server, ServerSettings};
use super::python::{Interpreter, Module, ModulePath, ModuleSettings};
use super::source::Source;
use super::surroundings::Surroundings;
use crate::call::{Kind, Origin};

/// All that a source is started with. Two that are equal need not be started twice.
#[derive(Clone)]
pub enum SourceSettings {
    /// A Python module.
    Python(Box<ModuleSettings>),
    /// An MCP server.
    Mcp(Box<ServerSettings>),
    /// The embedding program's own, ready as it is.
    Program {
        /// Its name.
        name: String,
        /// The source.
        source: Arc<dyn Source>,
    },
}

impl SourceSettings {
    /// Its name, unique among all sources.
    pub fn name(&self) -> &str {
        match self {
            Self::Python(module) => &module.name,
            Self::Mcp(server) => &server.name,
            Self::Program { name, .. } => name,
        }
    }

    /// How its tools run.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Python(_) => Kind::Python,
            Self::Mcp(_) => Kind::Mcp,
            Self::Program { .. } => Kind::Native,
        }
    }

    /// Where it was declared.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Python(_) | Self::Mcp(_) => Origin::Manifest,
            Self::Program { .. } => Origin::Program,
        }
    }

    /// Whether somebody else decides what its tools are. Then one that cannot be used takes no other with it, and what
    /// is said of effects is believed only where it asks for more care.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Mcp(_) => true,
            Self::Python(_) | Self::Program { .. } => false,
        }
    }

    /// Files that it is read from: when one of them says something else, so does the source.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            Self::Python(settings) => {
                let ModuleSettings { module, interpreter, .. } = &**settings;
                let module = match module {
                    ModulePath::File(file) => Some(file.as_path()),
                    ModulePath::Name(_) => None,
                };
                let requirements = match interpreter {
                    Interpreter::Requirements(file) => Some(file.as_path()),
                    Interpreter::Program(_) => None,
                };
                module.into_iter().chain(requirements).collect()
            }
            Self::Mcp(_) | Self::Program { .. } => Vec::new(),
        }
    }

    /// Says where virtual environments are kept; whoever starts the service knows where it may write.
    pub fn keep_venvs_in(&mut self, folder: &Path) {
        match self {
            Self::Python(module) => folder.clone_into(&mut module.venvs),
            Self::Mcp(_) | Self::Program { .. } => {}
        }
    }

    /// The source, not started.
    pub fn build(&self, surroundings: &Surroundings) -> Arc<dyn Source> {
        match self {
            Self::Python(module) => Arc::new(Module::new(ModuleSettings::clone(module), surroundings)),
            Self::Mcp(server) => Arc::new(Server::new(ServerSettings::clone(server), surroundings)),
            Self::Program { source, .. } => source.clone(),
        }
    }
}

impl PartialEq for SourceSettings {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Python(one), Self::Python(other)) => one == other,
            (Self::Mcp(one), Self::Mcp(other)) => one == other,
            (Self::Program { name: a, source: one }, Self::Program { name: b, source: other }) => {
                a == b && Arc::ptr_eq(one, other)
            }
            _ => false,
        }
    }
}
