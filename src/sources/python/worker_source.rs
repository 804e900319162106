//! The program of a worker: the Python files in `worker/`, embedded at build time.

use std::collections::BTreeMap;

/// The argument of `python -c`. Reads the other files from standard input, and runs them. See
/// [`message`].
pub(super) const BOOT_SCRIPT: &str = include_str!("worker/boot.py");

/// Pairs of the path of a file in `worker/` and its text, listed by `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/python_worker.rs"));

/// What [`BOOT_SCRIPT`] reads: a line with a number, and so many bytes of JSON, an object with the
/// text of each file.
pub(super) fn message() -> Vec<u8> {
    let files: BTreeMap<_, _> = FILES.iter().copied().collect();
    // Cannot fail: it writes to memory, and all keys are strings.
    let json = serde_json::to_vec(&files).unwrap_or_default();
    [format!("{}\n", json.len()).into_bytes(), json].concat()
}
