//! Lints: find settings in a manifest that are probably not intended. Each file covers one idea.
//! Each finding has its position and a correction.
//!
//! A lint predicts a call that fails, a definition that a provider refuses, or a secret that gets
//! out. Few are about style: descriptions that are missing or vague, and schemas that are open.
//!
//! A **warning** is a fault for every user of the tools. A **hint** may be intended: it depends on
//! the provider, or on facts that only the operator knows. Lints do not repeat findings of loading.
//! They read the text as written, so no secret gets into a message.

mod addresses;
mod agents;
mod callers;
mod context;
mod descriptions;
mod lints;
mod listed;
mod objects;
mod own_address;
mod patterns;
mod provider_refusals;
mod sandbox;
mod schema_parts;
mod secrets;
mod servers;
mod shell_syntax;
mod values;

use crate::call::words;
use std::path::Path;

pub(super) use self::lints::Lints;
use self::lints::Located;
pub use self::listed::{ListedFinding, ListedFindings, lint_listed_tools};
use self::schema_parts::ToolSchema;
pub(crate) use self::secrets::looks_like_secret;
use super::finding::{Finding, join_path};
use super::parsed::{MCP_SERVERS, OPENAPI, ParsedManifest, ParsedSource, ParsedTool};
use super::references::ManifestInput;
use crate::call::NameMatching;

/// Keys of a source whose texts may be secrets.
const SOURCE_SETTINGS: [&str; 7] = words("environment init command url headers query auth");

impl ParsedSource {
    fn located(&self) -> Located<'_> {
        Located::new(&self.entry, &join_path(self.section, &[&self.name]))
    }
}

/// All findings of the lints. `matching` is the setting for other spellings of names. `listen` is
/// the listen address, as far as the manifest gives it.
pub(super) fn run_lints(
    parsed: &ParsedManifest,
    matching: NameMatching,
    listen: &str,
    input: &dyn ManifestInput,
) -> Vec<Finding> {
    let mut lints = Lints::default();
    provider_refusals::check_tool_names(&parsed.tools, matching, &mut lints);
    for tool in &parsed.tools {
        lint_tool(tool, input, &mut lints);
    }
    for source in &parsed.sources {
        let (entry, name, base) = (&source.located(), &source.name, &source.base);
        let pins = parsed.pins.as_ref();
        secrets::check_short_values(entry, base, input, &mut lints);
        secrets::check_settings_literals(entry, &SOURCE_SETTINGS, &mut lints);
        sandbox::check_sandbox(entry, &mut lints);
        if source.section == OPENAPI && servers::is_document_at_url(&source.entry, base, input) {
            servers::check_pins(name, entry, pins, &mut lints);
        }
        if source.section == MCP_SERVERS {
            servers::check_url(entry, &mut lints);
            servers::check_pins(name, entry, pins, &mut lints);
            servers::check_trust_hints(name, entry, pins, &mut lints);
            servers::check_start_timeout(entry, &mut lints);
        }
    }
    agents::check_agents(&parsed.tools, &mut lints);
    own_address::check_own_address(parsed, listen, &mut lints);
    if let Some(root) = &parsed.root {
        let base = super::file::parent_folder(root.location.file.as_ref() as &Path);
        let root = &Located::new(root, "");
        secrets::check_short_values(root, &base, input, &mut lints);
        secrets::check_settings_literals(root, &["server", "ledger"], &mut lints);
        if let Some(defaults) = root.get("defaults") {
            sandbox::check_sandbox(&defaults, &mut lints);
        }
        sandbox::check_api(root, &mut lints);
        addresses::check_addresses(root, &base, input, &mut lints);
        // The tools of a source are unknown before it is listed.
        let all_known = parsed.sources.is_empty();
        callers::check_callers(root, &base, &parsed.tools, all_known, input, &mut lints);
    }
    lints.into_findings()
}

fn lint_tool(tool: &ParsedTool, input: &dyn ManifestInput, lints: &mut Lints) {
    descriptions::check_description(tool, lints);
    for schema in ToolSchema::from_entry(&tool.entry, &tool.path) {
        let parts = schema.parts();
        if schema.is_input {
            descriptions::check_parameters(&schema, &parts, lints);
            provider_refusals::check_parameter_names(&schema, lints);
            provider_refusals::check_roots(&parts, lints);
            provider_refusals::check_subsets(&schema, &parts, lints);
            provider_refusals::check_standalone(&schema, tool, lints);
            objects::check_objects(&parts, lints);
        }
        patterns::check_patterns(tool, &parts, lints);
        values::check_values(&schema, &parts, lints);
    }
    let entry = &Located::new(&tool.entry, &tool.path);
    secrets::check_short_values(entry, &tool.base, input, lints);
    secrets::check_literals(entry, lints);
    sandbox::check_sandbox(entry, lints);
    shell_syntax::check_shell_syntax(tool, lints);
    context::check_context(tool, lints);
}

#[cfg(test)]
mod testing;
