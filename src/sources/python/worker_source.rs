//! The program of a worker: the Python files in `worker/`, embedded at build time.

use std::collections::BTreeMap;

/// The argument of `python -c`. Reads the other files from standard input, and runs them. See
/// [`message`].
pub(super) const BOOT_SCRIPT: &str = include_str!("worker/boot.py");

/// Pairs of the path of a file in `worker/` and its text.
macro_rules! embed {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("worker/", $path)))),*] };
}

const FILES: &[(&str, &str)] = embed![
    "__init__.py",
    "async_role.py",
    "calls.py",
    "content.py",
    "context.py",
    "questions.py",
    "decorators.py",
    "docstrings.py",
    "error_text.py",
    "finding.py",
    "frameworks/__init__.py",
    "frameworks/crewai.py",
    "frameworks/langchain.py",
    "frameworks/strands.py",
    "frameworks/strands_stub.py",
    "frameworks/tool_spec.py",
    "functions.py",
    "importing.py",
    "json_values.py",
    "loading.py",
    "locations.py",
    "main.py",
    "results.py",
    "schema/__init__.py",
    "schema/builder.py",
    "schema/containers.py",
    "schema/converters.py",
    "schema/hints.py",
    "schema/json_schema.py",
    "schema/plain_types.py",
    "schema/pydantic_types.py",
    "schema/records.py",
    "signatures.py",
    "sync_role.py",
    "tools.py",
    "violations.py",
    "wire.py",
];

/// What [`BOOT_SCRIPT`] reads: a line with a number, and so many bytes of JSON, an object with the
/// text of each file.
pub(super) fn message() -> Vec<u8> {
    let files: BTreeMap<_, _> = FILES.iter().copied().collect();
    // Cannot fail: it writes to memory, and all keys are strings.
    let json = serde_json::to_vec(&files).unwrap_or_default();
    [format!("{}\n", json.len()).into_bytes(), json].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn python_files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let is_python =
            |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py");
        let below = folders.iter().flat_map(|folder| python_files(folder));
        files.into_iter().filter(is_python).chain(below).collect()
    }

    #[test]
    fn every_file_of_the_worker_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sources/python/worker");
        let files = python_files(&folder);
        let mut expected: BTreeSet<&str> = files
            .iter()
            .map(|path| path.strip_prefix(&folder).unwrap().to_str().unwrap())
            .collect();
        assert!(
            expected.remove("boot.py"),
            "the script that reads the other files"
        );
        assert_eq!(
            FILES.iter().map(|&(path, _)| path).collect::<BTreeSet<_>>(),
            expected
        );
    }
}
