//! The tools while the service runs: where they come from, and how they change.
//!
//! - `live_tools.rs`: the tools with everything that can change them; the check of lists of tools;
//!   settings that change only at the next start
//! - `service_config.rs`: what stays the same for the whole run, and reading the manifest
//! - `file_snapshot.rs`: snapshots of the files that were read
//! - `reload.rs`: takes a new manifest, or keeps the old one; decides when to reload
//! - `registration.rs`: tools that come over HTTP
//! - `lifecycle/`: modules and servers that provide tools
//!
//! One change is made at a time. Readers never wait.

mod file_snapshot;
mod lifecycle;
mod live_tools;
mod registration;
mod reload;
mod service_config;

pub use lifecycle::{QuarantinedTool, Restart, SourceState, SourceView};
pub(crate) use lifecycle::{SourceFindings, list_once};
pub use live_tools::{LiveTools, ReloadStatus};
pub use registration::RegisterError;
pub use reload::Error;
pub(crate) use service_config::ManifestReading;
pub use service_config::ServiceConfig;
