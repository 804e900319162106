//! A manifest and the files beside it, for tests of the sections that declare sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Finding, Manifest, ManifestInput, Severity, check, load, read_ledger_address};

const MANIFEST: &str = "/etc/crib/t.yaml";
const INCLUDED: &str = "/etc/crib/more/m.yaml";
const FILES: [&str; 8] = [
    "/etc/crib/bin/node",
    "/etc/crib/bin/server",
    "/etc/crib/more/server",
    "/etc/crib/package.json",
    "/etc/crib/requirements.txt",
    "/etc/crib/tools/m.py",
    "/etc/crib/tools/shop.ts",
    "/etc/crib/venv/bin/python",
];

/// A manifest, a file that it may include, existing programs and modules, and two variables.
struct Folder<'a>(&'a str);

impl ManifestInput for Folder<'_> {
    fn env_var(&self, name: &str) -> Option<String> {
        match name {
            "KEY" => Some("value-of-key".into()),
            "TIME" => Some("9s".into()),
            _ => None,
        }
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
    load(Path::new(MANIFEST), &Folder(text), &HashMap::new()).map_err(error_lines)
}

/// The URL of the ledger and the folder at which it starts, or the errors.
pub(super) fn read_ledger(text: &str) -> Result<(String, PathBuf), Vec<String>> {
    let settings = read_ledger_address(Path::new(MANIFEST), &Folder(text)).map_err(error_lines)?;
    Ok((settings.url, settings.base))
}

fn error_lines(findings: Vec<Finding>) -> Vec<String> {
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error);
    errors
        .map(|finding| finding.to_string().replace("/etc/crib/t.yaml:", ""))
        .collect()
}

/// All findings of `toolcrib check`.
pub(super) fn check_text(text: &str) -> Vec<Finding> {
    check(Path::new(MANIFEST), &Folder(text), &HashMap::new()).findings
}

/// The findings of `toolcrib check --no-secrets`, as lines.
pub(super) fn check_without_secrets(text: &str) -> Vec<String> {
    struct WithoutSecrets<'a>(Folder<'a>);
    impl ManifestInput for WithoutSecrets<'_> {
        fn env_var(&self, name: &str) -> Option<String> {
            self.0.env_var(name)
        }
        fn read_text(&self, path: &Path) -> std::io::Result<String> {
            self.0.read_text(path)
        }
        fn accepts_missing_secrets(&self) -> bool {
            true
        }
        fn is_file(&self, path: &Path) -> bool {
            self.0.is_file(path)
        }
    }
    let checked = check(
        Path::new(MANIFEST),
        &WithoutSecrets(Folder(text)),
        &HashMap::new(),
    );
    checked
        .findings
        .iter()
        .map(|finding| finding.to_string().replace("/etc/crib/t.yaml:", ""))
        .collect()
}

/// All findings, each as its rule and path.
pub(super) fn check_rules(text: &str) -> Vec<String> {
    check_text(text)
        .iter()
        .map(|finding| format!("{} {}", finding.rule.as_str(), finding.path))
        .collect()
}
