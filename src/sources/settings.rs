//! Builds a source from its settings. This is the only module that knows all kinds of sources.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use strum::IntoStaticStr;
use utoipa::ToSchema;

use super::mcp::{Server, ServerSettings, Transport};
use super::openapi::{Api, ApiSettings, DocumentLocation};
use super::python::PythonRuntime;
use super::source::{Source, SourceFault, SourceListing, SourceStatus, StatusFn};
use super::typescript::TypescriptRuntime;
use super::workers::{Language, Module, ModuleSettings};
use crate::call::{Kind, Origin};
use crate::kinds::SandboxSetting;
use crate::kinds::process_env::ProcessEnv;
use crate::kinds::table::missing_feature;

/// The kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A source of the embedding program.
    Native,
    /// A Python module.
    Python,
    /// A TypeScript or JavaScript module.
    Typescript,
    /// An MCP server.
    Mcp,
    /// An OpenAPI document.
    Openapi,
}

impl SourceKind {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Everything that a source is started with. Sources with equal settings need not be started twice.
#[derive(Clone, PartialEq)]
pub enum SourceSettings {
    /// A module in another language.
    Module(Box<ModuleSettings>),
    /// An MCP server.
    Mcp(Box<ServerSettings>),
    /// An OpenAPI document.
    Openapi(Box<ApiSettings>),
    /// A source of the embedding program, used as it is.
    Program {
        /// The name of the source.
        name: String,
        /// The source.
        source: ProgramSource,
    },
}

/// A source of the program. It is equal only to itself.
#[derive(Clone)]
pub struct ProgramSource(pub Arc<dyn Source>);

impl PartialEq for ProgramSource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl SourceSettings {
    /// The name of the source, unique among all sources.
    pub fn name(&self) -> &str {
        match self {
            Self::Module(module) => &module.name,
            Self::Mcp(server) => &server.name,
            Self::Openapi(api) => &api.name,
            Self::Program { name, .. } => name,
        }
    }

    /// The kind of its tools.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Module(module) => module.language.kind(),
            Self::Mcp(_) => Kind::Mcp,
            Self::Openapi(_) => Kind::Http,
            Self::Program { .. } => Kind::Native,
        }
    }

    /// Where the source was declared.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Module(_) | Self::Mcp(_) | Self::Openapi(_) => Origin::Manifest,
            Self::Program { .. } => Origin::Program,
        }
    }

    /// The kind of the source.
    pub fn source_kind(&self) -> SourceKind {
        match self {
            Self::Module(module) => match module.language {
                Language::Python => SourceKind::Python,
                Language::Typescript => SourceKind::Typescript,
            },
            Self::Mcp(_) => SourceKind::Mcp,
            Self::Openapi(_) => SourceKind::Openapi,
            Self::Program { .. } => SourceKind::Native,
        }
    }

    /// Whether another party defines the tools while the service runs. Declared effects are then
    /// trusted only if they demand more caution.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Mcp(_))
    }

    /// Whether another party may change the definitions of the tools, so that the operator can pin
    /// them.
    pub fn can_be_pinned(&self) -> bool {
        match self {
            Self::Mcp(_) => true,
            Self::Openapi(api) => matches!(api.document, DocumentLocation::Url(_)),
            Self::Module(_) | Self::Program { .. } => false,
        }
    }

    /// Whether a tool that cannot be used does not affect the other tools.
    pub fn may_lose_tools(&self) -> bool {
        matches!(self, Self::Mcp(_) | Self::Openapi(_))
    }

    /// The files from which the source is loaded. If one changes, the source has changed.
    pub fn source_files(&self) -> Vec<&Path> {
        match self {
            Self::Module(settings) => {
                let module = settings.module.file();
                let requirements = settings.requirements.as_deref();
                module.into_iter().chain(requirements).collect()
            }
            Self::Openapi(api) => match &api.document {
                DocumentLocation::File(file) => vec![file],
                DocumentLocation::Url(_) => Vec::new(),
            },
            Self::Mcp(_) | Self::Program { .. } => Vec::new(),
        }
    }

    /// The program that it starts, and what this may do.
    pub fn program(&self) -> Option<(&Path, &SandboxSetting)> {
        match self {
            Self::Module(module) => Some((&module.program, &module.sandbox)),
            Self::Mcp(server) => match &server.transport {
                Transport::Command { argv, sandbox, .. } => {
                    Some((Path::new(argv.first()?), sandbox))
                }
                Transport::Url { .. } => None,
            },
            Self::Openapi(_) | Self::Program { .. } => None,
        }
    }

    /// The working folder of its programs.
    pub fn workdir(&self) -> Option<&Path> {
        match self {
            Self::Module(module) => Some(&module.workdir),
            Self::Mcp(server) => match &server.transport {
                Transport::Command { workdir, .. } => Some(workdir),
                Transport::Url { .. } => None,
            },
            Self::Openapi(_) | Self::Program { .. } => None,
        }
    }

    /// Sets the folder for packages of modules. Only the code that starts the service knows a
    /// writable folder.
    pub fn set_package_dir(&mut self, folder: &Path) {
        if let Self::Module(module) = self {
            folder.clone_into(&mut module.package_dir);
        }
    }

    /// Builds the source without starting it.
    pub fn build(&self, process_env: &ProcessEnv) -> Arc<dyn Source> {
        match self {
            Self::Module(module) if missing_feature(self.kind()).is_none() => {
                let settings = ModuleSettings::clone(module);
                match module.language {
                    Language::Python => Arc::new(Module::new(settings, PythonRuntime, process_env)),
                    Language::Typescript => {
                        Arc::new(Module::new(settings, TypescriptRuntime, process_env))
                    }
                }
            }
            Self::Mcp(server) if cfg!(feature = "mcp") => {
                Arc::new(Server::new(ServerSettings::clone(server), process_env))
            }
            Self::Openapi(api) if cfg!(feature = "http") => {
                Arc::new(Api::new(ApiSettings::clone(api), process_env))
            }
            Self::Program { source, .. } => source.0.clone(),
            Self::Module(_) | Self::Mcp(_) | Self::Openapi(_) => {
                Arc::new(UnsupportedSource(self.kind()))
            }
        }
    }
}

/// A source of a kind that is not built in. A manifest with one is refused, so only a program can
/// have it.
struct UnsupportedSource(Kind);

#[async_trait]
impl Source for UnsupportedSource {
    async fn list(&self, _: &StatusFn) -> Result<SourceListing, SourceFault> {
        Err(SourceFault(missing_feature(self.0).unwrap_or_default()))
    }

    fn status(&self) -> SourceStatus {
        SourceStatus::default()
    }
}
