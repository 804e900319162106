//! Lint: usage limits that are never reached, because another limit is reached first.
//!
//! Windows start at UTC boundaries. So each minute is within one hour, each hour within one day,
//! each day within one month, and each of these within a lifetime. A run is only within a lifetime.
//! The use of all callers together bounds the use of each. So a limit has no effect if another
//! limit counts at least the same calls and allows no more.

use super::Lints;
use crate::call::units::Count;
use crate::call::{Limit, LimitScope, Per};
use crate::manifest::decode::join_path;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;

/// Checks `limits:` of an entry. `all_one`: the entry is a caller, whose limits count its own calls
/// for any scope.
pub(super) fn check_limits(entry: &Node, entry_path: &str, all_one: bool, lints: &mut Lints) {
    let Some(node) = entry.get("limits") else {
        return;
    };
    let items = match &node.data {
        Data::List(items) => items.as_slice(),
        // One limit instead of a list.
        Data::Map(_) => std::slice::from_ref(node),
        Data::Scalar(_) => return,
    };
    let read = |(at, node): (usize, &'_ Node)| {
        let mut limit: Limit = serde_json::from_value(node.to_json()).ok()?;
        if all_one {
            limit.scope = LimitScope::Caller;
        }
        Some((at, limit))
    };
    let limits: Vec<(usize, Limit)> = items.iter().enumerate().filter_map(read).collect();
    for (at, limit) in &limits {
        let (location, path) = (
            &items[*at].location,
            join_path(entry_path, &["limits".into(), at.to_string()]),
        );
        if limit.calls == 0 {
            let message = "allows no call; to disable a tool write enabled: false, to exclude a caller write deny:";
            lints.warn(Rule::IdleLimit, location, path, message);
            continue;
        }
        // If two limits count the same calls, the first is kept.
        let stronger = limits.iter().find(|(other, by)| {
            let counts_the_same = by == limit;
            other != at && makes_redundant(by, limit) && (!counts_the_same || other < at)
        });
        if let Some((_, by)) = stronger {
            let message = format!(
                "never reached: the limit of {} per {}{} is reached first; leave this one out, or correct one of them",
                Count(by.calls, "call"),
                by.per.as_str(),
                if by.scope == limit.scope {
                    ""
                } else {
                    " over all callers"
                }
            );
            lints.warn(Rule::IdleLimit, location, path, message);
        }
    }
}

/// Whether `by` counts all calls that `limit` counts, and allows no more.
fn makes_redundant(by: &Limit, limit: &Limit) -> bool {
    let scope = by.scope == limit.scope || by.scope == LimitScope::Tool;
    scope && window_covers(by.per, limit.per) && by.calls <= limit.calls
}

fn window_covers(outer: Per, inner: Per) -> bool {
    let rank = |per: Per| match per {
        Per::Minute => 0,
        Per::Hour => 1,
        Per::Day => 2,
        Per::Month => 3,
        Per::Run | Per::Lifetime => 4,
    };
    outer == inner
        || outer == Per::Lifetime
        || (outer != Per::Run && inner != Per::Run && rank(outer) > rank(inner))
}

#[cfg(test)]
mod tests {
    use super::super::testing::tool_findings;

    fn limit_findings(limits: &str) -> Vec<String> {
        tool_findings(&format!("    limits: [{limits}]\n"))
            .iter()
            .map(|line| line.replace(" 6", ""))
            .collect()
    }

    #[test]
    fn redundant_limits_are_warnings() {
        assert_eq!(
            limit_findings("{calls: 10, per: minute}, {calls: 5, per: day}"),
            ["warning idle-limit limits.0"]
        );
        assert_eq!(
            limit_findings("{calls: 10, per: day, scope: caller}, {calls: 10, per: day}"),
            ["warning idle-limit limits.0"]
        );
        assert_eq!(
            limit_findings("{calls: 5, per: run}, {calls: 5, per: lifetime}"),
            ["warning idle-limit limits.0"]
        );
        assert_eq!(
            limit_findings("{calls: 7, per: day}, {calls: 9, per: day}"),
            ["warning idle-limit limits.1"]
        );
        assert_eq!(
            limit_findings("{calls: 7, per: day}, {calls: 7, per: day}"),
            ["warning idle-limit limits.1"]
        );
        assert_eq!(
            limit_findings("{calls: 0, per: day}"),
            ["warning idle-limit limits.0"]
        );
    }

    #[test]
    fn independent_limits_have_no_findings() {
        assert_eq!(
            limit_findings("{calls: 10, per: minute}, {calls: 100, per: day}"),
            [""; 0]
        );
        assert_eq!(
            limit_findings("{calls: 100, per: day, scope: caller}, {calls: 5, per: run}"),
            [""; 0]
        );
        assert_eq!(
            limit_findings("{calls: 10, per: day}, {calls: 5, per: day, scope: caller}"),
            [""; 0]
        );
        assert_eq!(
            limit_findings("{calls: 10, per: run}, {calls: 5, per: day}"),
            [""; 0],
            "a run may last for days"
        );
    }
}
