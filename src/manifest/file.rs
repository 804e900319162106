//! Reads one file of a manifest.

use std::path::{Path, PathBuf};

use super::decode::Findings;
use super::finding::{Finding, Location};
use super::node::Node;
use super::references::ManifestInput;
use super::rule::Rule;

/// Reads a file whose root is a map. Reports why it cannot be read.
pub(super) fn parse_file(
    path: &Path,
    input: &dyn ManifestInput,
    findings: &Findings,
) -> Option<Node> {
    let unreadable = |message: &str| {
        let fault = Finding::error(Location::start_of(path), "", message);
        findings.push(fault.with_rule(Rule::Unreadable));
    };
    let text = input
        .read_text(path)
        .map_err(|error| unreadable(&format!("cannot be read: {error}")))
        .ok()?;
    let (node, faults) = Node::parse(path, &text);
    findings.extend(faults);
    let node = node?;
    if node.entries().is_none() {
        unreadable("a manifest is a map with keys such as `tools:`, `callers:` and `server:`");
        return None;
    }
    Some(node)
}

/// The folder at which relative paths of a file start.
pub(super) fn parent_folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
