//! The YAML file that declares tools, callers and settings.
//!
//! Reading finds as many faults as possible at once. Each has a position and a correction.
//!
//! - `node.rs` has values with positions, and `file.rs` reads one file; `yaml_syntax.rs` explains why
//!   a text is not YAML.
//! - `load.rs` reads all files. `parsed.rs` is their content, and `service_sections.rs` reads
//!   the sections without tools.
//! - `references.rs` replaces references to secrets. `reference_context.rs` knows where their text
//!   would be read as a template. `missing_secrets.rs` is for missing values,
//!   `caller_references.rs` for credentials of callers.
//! - `decode.rs` decodes parts to the types in `sections.rs`, and collects findings; `inputs.rs` is
//!   what entries are read with. `tool.rs` makes tools of entries, and `tool_schemas.rs` reads their
//!   schemas and examples.
//! - `modules.rs`, `servers.rs` and `apis.rs` read sources of tools; `source_tools.rs` has the
//!   parts that they share, and `server_checks.rs` the checks of a server's keys.
//! - `lock.rs` reads pins (`pins.rs`), and `definition_change.rs` tells what differs from one.
//! - `listen.rs` reads addresses to listen on, `ledger_address.rs` only the address of the ledger.
//! - `name_conflicts.rs` finds names that occur twice or that tools of two servers could share, and `self_reference.rs`
//!   servers that are this service.
//! - `misplaced_keys.rs` finds keys of a tool that are indented too far; `finding.rs` also
//!   writes findings for people.
//! - `policy.rs` completes policies from the defaults; `short_forms.rs` reads `cache: 5m`;
//!   `callers.rs` reads callers.
//! - `toolsets.rs` reads toolsets; `tool_lists.rs` finds entries of tool lists that match no tool.
//! - `variables.rs` and `context.rs` read the variables and context fields that tools and sources
//!   declare.
//! - `lint/` finds settings that are valid but probably not intended.

mod apis;
mod caller_references;
mod callers;
mod check;
mod contents;
mod context;
mod decode;
mod defaults;
pub mod definition_change;
mod file;
mod finding;
mod inputs;
mod ledger_address;
mod lint;
mod listen;
mod load;
mod lock;
mod misplaced_keys;
mod missing_secrets;
mod modules;
mod name_conflicts;
mod node;
mod parameters;
mod parsed;
pub mod pins;
mod policy;
mod read_files;
mod reference_context;
mod references;
pub(crate) mod registered;
mod rule;
mod schema;
mod sections;
mod self_reference;
mod server_checks;
mod servers;
mod service_sections;
mod short_forms;
#[cfg(test)]
mod slip_tests;
mod source;
mod source_tools;
#[cfg(test)]
mod testing;
mod tool;
mod tool_lists;
mod tool_schemas;
mod toolsets;
mod typescript_modules;
mod variables;
mod yaml_syntax;

pub use callers::check_caller_name;
pub use check::{Checked, DeclaredVariable, check};
pub use contents::{DEFAULT_CACHE_BYTES, DEFAULT_LEDGER, DEFAULT_LISTEN, Manifest, ServerSettings};
pub use finding::{Finding, Location, Severity, summarize_findings};
pub use ledger_address::read_ledger_address;
pub(crate) use lint::looks_like_secret;
pub use lint::{ListedFinding, ListedFindings, lint_listed_tools};
pub use listen::{complete_address, is_loopback};
pub use load::load;
pub(crate) use load::{Host, load_for_host};
pub use policy::PolicyRules;
pub use references::{ManifestInput, ProcessInput};
pub(crate) use references::{matching_files, read_file};
pub use registered::{Defaults, read_registered_tool};
pub use rule::Rule;
pub use schema::json_schema;
pub(crate) use self_reference::self_references;
pub use source::{DeclaredSource, SourceRules, ToolRules};
pub(crate) use tool_lists::{KnownTools, ListEntry};
