//! What a program of a tool may do: `sandbox:` of an entry.
//!
//! - `config`: the setting as written.
//! - `files`: the files of the service and of its entries, which programs do not see.
//! - `defaults`: makes the sandbox of an entry from both.
//! - `entry`: the sandbox of one entry, and what of it is in force.
//! - `proxy`: the way to the hosts that `network:` names.
//!
//! The crate `toolcrib-process` applies the rules. `docs/explain/sandbox.md` says what each level holds.

mod config;
mod defaults;
mod entry;
mod files;
mod proxy;

pub use config::{NetworkSetting, SandboxMap, SandboxSetting};
pub use defaults::SandboxDefaults;
pub use entry::{EntrySandbox, OwnPaths, SandboxReport, program_paths};
pub use files::{Sandboxes, ServiceFiles};
