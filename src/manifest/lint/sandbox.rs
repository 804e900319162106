//! Lints: programs without a sandbox, and the HTTP API without callers.

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

/// Checks a manifest whose author relies on sandboxes: without callers, every program with network is an
/// administrator.
pub(super) fn check_api(root: &Located<'_>, lints: &mut Lints) {
    let sandbox = root.get("server").and_then(|server| server.get("sandbox"));
    let is_required = |at: &Located<'_>| at.text() == "required";
    let Some(at) = sandbox.filter(is_required) else {
        return;
    };
    if root.items("callers").is_empty() {
        let message = "without callers, a program with network may use the HTTP API of the service as an administrator; add \
                       callers with keys";
        let location = at.node.locate::<&str>(&[]);
        lints.hint(Rule::NoCallers, location, at.path, message);
    }
}

#[cfg(test)]
mod tests {
    use crate::manifest::lint::testing::finding_lines;

    #[test]
    fn required_sandboxes_want_callers() {
        let required = "server: {sandbox: required}\n";
        let found = finding_lines(required, &[]);
        assert_eq!(found, ["hint no-callers server.sandbox 1"]);
        let callers = "callers: [{name: a, key: kIju38sVnq0zzLx51TpWQa}]\n";
        let found = finding_lines(&format!("{required}{callers}"), &[]).join(" ");
        assert!(!found.contains("no-callers"), "{found}");
        assert_eq!(finding_lines("server: {}\n", &[]), [""; 0]);
    }
}
