//! A manifest and the files beside it, for tests of the sections that declare sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Finding, Manifest, ManifestInput, Severity, check, load};

const MANIFEST: &str = "/etc/crib/t.yaml";
const INCLUDED: &str = "/etc/crib/more/m.yaml";
const FILES: [&str; 5] = [
    "/etc/crib/bin/server",
    "/etc/crib/more/server",
    "/etc/crib/requirements.txt",
    "/etc/crib/tools/m.py",
    "/etc/crib/venv/bin/python",
];

/// A manifest, a file that it may include, existing programs and modules, and one variable.
struct Folder<'a>(&'a str);

impl ManifestInput for Folder<'_> {
    fn env_var(&self, name: &str) -> Option<String> {
        (name == "KEY").then(|| "value-of-key".into())
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        match path.to_str() {
            Some(MANIFEST) => Ok(self.0.to_owned()),
            Some(INCLUDED) => Ok("mcp_servers: {far: {command: [./server]}}\n".into()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    fn is_file(&self, path: &Path) -> bool {
        FILES.map(Path::new).contains(&path)
    }

    fn matching_files(&self, _: &str) -> Result<Vec<PathBuf>, String> {
        Ok(vec![INCLUDED.into()])
    }
}

/// The manifest, or its errors: each with line, column, path and message.
pub(super) fn load_text(text: &str) -> Result<Manifest, Vec<String>> {
    load(Path::new(MANIFEST), &Folder(text), &HashMap::new()).map_err(|findings| {
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.to_string().replace("/etc/crib/t.yaml:", "")).collect()
    })
}

/// All findings of `toolcrib check`.
pub(super) fn check_text(text: &str) -> Vec<Finding> {
    check(Path::new(MANIFEST), &Folder(text), &HashMap::new()).findings
}

/// All findings, each as its rule and path.
pub(super) fn check_rules(text: &str) -> Vec<String> {
    check_text(text).iter().map(|finding| format!("{} {}", finding.rule.as_str(), finding.path)).collect()
}
