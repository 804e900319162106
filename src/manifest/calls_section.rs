//! Checks `calls:` of a manifest.

use super::decode::Findings;
use super::node::Node;
use crate::call::CallSettings;

/// Reports settings with which no call could run.
pub(super) fn check_calls(root: &Node, calls: &CallSettings, findings: &mut Findings) {
    for (key, nothing, message) in [
        (
            "parallel",
            calls.parallel == 0,
            "at least one call must be able to run",
        ),
        (
            "max_parse_attempts",
            calls.max_parse_attempts.least() == 0,
            "the first attempt counts too: write 1 or more",
        ),
    ] {
        if nothing {
            findings.error(root, &["calls".to_owned(), key.to_owned()], "", message);
        }
    }
}
