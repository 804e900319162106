//! Manifests. Loading and checking agree, findings stand in the file, and no message has the value
//! of a variable.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use toolcrib::manifest::{self, ManifestInput, Severity, load};

const SECRET: &str = "Zr7QsecretW2";

struct Input<'t>(&'t str);

impl ManifestInput for Input<'_> {
    fn env_var(&self, name: &str) -> Option<String> {
        (!name.starts_with("MISSING")).then(|| SECRET.to_owned())
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("toolcrib.yaml") => Ok(self.0.to_owned()),
            Some("secret") => Ok(SECRET.to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_file(&self, path: &Path) -> bool {
        path.ends_with("program")
    }

    fn matching_files(&self, _pattern: &str) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }
}

pub(crate) fn check(text: &str) {
    let (path, input, natives) = (
        Path::new("/nowhere/toolcrib.yaml"),
        Input(text),
        HashMap::new(),
    );
    let checked = manifest::check(path, &input, &natives);
    let loaded = load(path, &input, &natives);
    let errors = checked.count(Severity::Error);
    let refused = loaded.as_ref().err().map(Vec::as_slice).unwrap_or_default();
    assert!(
        loaded.is_ok() || errors > 0,
        "refused, and `check` has no error: {refused:?}"
    );
    let lines = text.split(['\n', '\r']).count();
    for finding in checked.findings.iter().chain(refused) {
        assert!(!finding.message.is_empty(), "{finding:?}");
        assert!(
            text.contains("Zr7Q") || !finding.message.contains(SECRET),
            "{finding:?}"
        );
        assert!(
            finding.location.line <= lines + 1,
            "{finding:?} in {lines} lines"
        );
    }
}
