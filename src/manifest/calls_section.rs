//! Checks `calls:` of a manifest.

use super::decode::Entry;
use crate::call::CallSettings;

/// Reports settings with which no call could run.
pub(super) fn check_calls(root: Entry<'_>, calls: &CallSettings) {
    if calls.parallel == 0 {
        root.error(
            &["calls", "parallel"],
            "at least one call must be able to run",
        );
    }
    if calls.max_parse_attempts.least() == 0 {
        let message = "the first attempt counts too: write 1 or more";
        root.error(&["calls", "max_parse_attempts"], message);
    }
}
