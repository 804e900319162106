//! Lint: programs without a sandbox.

use super::{Lints, Located};
use crate::manifest::rule::Rule;

/// Checks `sandbox` of an entry that starts programs, or of `defaults`.
pub(super) fn check_sandbox(entry: &Located<'_>, lints: &mut Lints) {
    let Some(at) = entry.get("sandbox").filter(|at| at.text() == "none") else {
        return;
    };
    let message = "without a sandbox, the program can read and change the ledger, the manifest and its secrets; leave the \
                   key out, or write a map with what the program needs";
    lints.warn_of(Rule::NoSandbox, &at, message);
}
