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
    findings: &mut Findings,
) -> Option<Node> {
    let location = || Location {
        file: path.into(),
        line: 1,
        column: 1,
    };
    let text = match input.read_text(path) {
        Ok(text) => text,
        Err(error) => {
            let unreadable = Finding::error(location(), "", format!("cannot be read: {error}"));
            findings.0.push(unreadable.with_rule(Rule::Unreadable));
            return None;
        }
    };
    let node = Node::parse(path, &text, &mut findings.0)?;
    if node.entries().is_none() {
        let message = "a manifest is a map with keys such as `tools:`, `callers:` and `server:`";
        findings
            .0
            .push(Finding::error(location(), "", message).with_rule(Rule::Unreadable));
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
