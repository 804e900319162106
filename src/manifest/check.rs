//! What `toolcrib check` asks for: everything that loading finds, and the lints.

use std::collections::HashMap;
use std::path::Path;

use super::finding::{Finding, Severity};
use super::load::{self, Host, Loaded};
use super::references::Source;
use super::{Manifest, lint};
use crate::tools::Tool;

/// A manifest, looked at closely.
pub struct Checked {
    /// Everything found: errors, then warnings and hints by place.
    pub findings: Vec<Finding>,
    /// What the manifest comes to, as far as it could be read.
    pub manifest: Manifest,
}

impl Checked {
    /// How many findings are that bad.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Reads a manifest as [`load`](super::load()) does and looks for what can be used and is hardly meant so. Runs nothing.
/// `natives` are the embedding program's own tools, by name.
pub fn check(path: &Path, source: &dyn Source, natives: &HashMap<String, Tool>) -> Checked {
    // A program's own tools are known here; one that has none is taken for the service itself.
    let host = Host { natives: Some(natives), is_alone: natives.is_empty(), ..Host::default() };
    let Loaded { manifest, mut findings, idle, written } = load::read(path, source, &host);
    let manifest = manifest.unwrap_or_default();
    findings.extend(idle);
    findings.extend(lint::lint(&written, manifest.calls.name_matching, &manifest.listen, source));
    // Errors stay in the order in which they were found, as `serve` has them: the first often causes the next.
    findings.sort_by_key(|finding| {
        let place = &finding.place;
        let odd = (finding.severity != Severity::Error).then(|| (place.file.clone(), place.line, place.column));
        (finding.severity, odd)
    });
    Checked { findings, manifest }
}
