//! Lints: find settings in a manifest that are probably not intended. Each file covers one idea. Each finding has its
//! position and a correction.
//!
//! A **warning** is a fault for every user of the tools: a model is misled, a setting has no effect, a value can
//! never be given, or an API refuses a definition. A **hint** may be intended: it depends on the provider, on taste,
//! or on facts that only the operator knows. Lints do not repeat findings of loading. They read the text as written,
//! so no secret gets into a message.

mod addresses;
mod agents;
mod bulkheads;
mod callers;
mod context;
mod descriptions;
mod limits;
mod names;
mod objects;
mod own_address;
mod policy;
mod refused;
mod secrets;
mod servers;
mod values;
mod walk;

use std::collections::HashSet;
use std::path::Path;

use self::walk::ToolSchema;
use super::decode::join;
use super::finding::{Finding, Place, Severity};
use super::load::{SERVERS, SourceText, WrittenSource, WrittenTool};
use super::references::Source;
use super::rule::Rule;
use crate::call::NameMatching;

/// All findings of the lints. `matching` is the setting for other spellings of names. `listen` is the listen address,
/// as far as the manifest gives it.
pub(super) fn lint(written: &SourceText, matching: NameMatching, listen: &str, source: &dyn Source) -> Vec<Finding> {
    let mut lints = Lints::default();
    refused::names(&written.tools, matching, &mut lints);
    for tool in &written.tools {
        tool_lints(tool, source, &mut lints);
    }
    names::look(&written.tools, &mut lints);
    for WrittenSource { section, name, entry, base } in &written.sources {
        let under = join(section, std::slice::from_ref(name));
        secrets::short(entry, &under, base, source, &mut lints);
        secrets::literal_in_source(entry, &under, &mut lints);
        secrets::unused_in_source(entry, &under, &mut lints);
        if *section == SERVERS {
            servers::look(entry, &under, &mut lints);
            servers::pinned(name, entry, &under, written.pins.as_ref(), &mut lints);
            servers::starts(entry, &under, &mut lints);
        }
    }
    agents::look(&written.tools, &mut lints);
    own_address::look(written, listen, &mut lints);
    if let Some(root) = &written.root {
        let base = super::load::folder(root.place.file.as_ref() as &Path);
        secrets::short(root, "", &base, source, &mut lints);
        secrets::in_root(root, &mut lints);
        addresses::look(root, &base, source, &mut lints);
        // The tools of a source are unknown before it is listed.
        let all_known = written.sources.is_empty();
        callers::look(root, &base, &written.tools, all_known, source, &mut lints);
        policy::of_defaults(root, &mut lints);
        bulkheads::look(root, &written.tools, &mut lints);
    }
    lints.0
}

/// Runs the lints of one tool.
fn tool_lints(tool: &WrittenTool, source: &dyn Source, lints: &mut Lints) {
    let under = tool.under.clone();
    descriptions::of_tool(tool, &under, lints);
    for schema in ToolSchema::of(&tool.entry, &under) {
        let parts = schema.parts();
        if schema.is_input() {
            descriptions::of_parameters(&schema, &parts, lints);
            refused::schema(&schema, &parts, lints);
            refused::references(&schema, tool, lints);
            objects::look(&parts, lints);
        }
        values::look(&schema, &parts, lints);
    }
    secrets::short(&tool.entry, &under, &tool.base, source, lints);
    secrets::literal(&tool.entry, &under, lints);
    secrets::unused(tool, &under, lints);
    policy::look(tool, &under, lints);
    context::look(tool, &under, lints);
}

/// The findings so far.
#[derive(Default)]
pub(super) struct Lints(Vec<Finding>, HashSet<(Rule, String, String)>);

impl Lints {
    fn warn(&mut self, rule: Rule, place: &Place, path: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Warning, rule, place, path.into(), message.into());
    }

    fn hint(&mut self, rule: Rule, place: &Place, path: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Hint, rule, place, path.into(), message.into());
    }

    /// Reports each finding once, even if several lints examine the same schema.
    fn push(&mut self, severity: Severity, rule: Rule, place: &Place, path: String, message: String) {
        if self.1.insert((rule, path.clone(), message.clone())) {
            self.0.push(Finding { place: place.clone(), path, message, severity, rule });
        }
    }
}

/// Runs the lints on the text of a manifest, for the tests of each rule.
#[cfg(test)]
mod testing;
