//! Lint: usage limits that another limit always reaches first.
//!
//! Windows start at UTC boundaries. So each minute is within one hour, each hour within one day, each day within one
//! month, and each of these within a lifetime. A run is only within a lifetime. The use of all callers together
//! bounds the use of each. So a limit has no effect if another limit counts at least the same calls and allows no
//! more.

use super::Lints;
use crate::call::units::Count;
use crate::call::{Limit, LimitScope, Per};
use crate::manifest::decode::join;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;

/// Checks `limits:` of an entry. `all_one`: the entry is a caller, whose limits count its own calls for any scope.
pub(super) fn look(entry: &Node, under: &str, all_one: bool, lints: &mut Lints) {
    let Some(Node { data: Data::List(items), .. }) = entry.get("limits") else { return };
    let read = |(at, node): (usize, &'_ Node)| {
        let mut limit: Limit = serde_json::from_value(node.to_json()).ok()?;
        if all_one {
            limit.scope = LimitScope::Caller;
        }
        Some((at, limit))
    };
    let limits: Vec<(usize, Limit)> = items.iter().enumerate().filter_map(read).collect();
    for (at, limit) in &limits {
        let (place, path) = (&items[*at].place, join(under, &["limits".into(), at.to_string()]));
        if limit.calls == 0 {
            let message = "lets nothing through; to switch a tool off write enabled: false, to bar a caller deny:";
            lints.warn(Rule::IdleLimit, place, path, message);
            continue;
        }
        // If two limits count the same calls, the first is kept.
        let stronger = limits.iter().find(|(other, by)| {
            let counts_the_same = by == limit;
            other != at && covers(by, limit) && (!counts_the_same || other < at)
        });
        if let Some((_, by)) = stronger {
            let message = format!(
                "never reached: {} per {}{} come first; leave this one out, or correct one of them",
                Count(by.calls, "call"),
                by.per.as_str(),
                if by.scope == limit.scope { "" } else { " over all callers" }
            );
            lints.warn(Rule::IdleLimit, place, path, message);
        }
    }
}

/// Whether `by` counts all calls that `limit` counts, and allows no more.
fn covers(by: &Limit, limit: &Limit) -> bool {
    let scope = by.scope == limit.scope || by.scope == LimitScope::Tool;
    scope && span_covers(by.per, limit.per) && by.calls <= limit.calls
}

fn span_covers(outer: Per, inner: Per) -> bool {
    let rank = |per: Per| match per {
        Per::Minute => 0,
        Per::Hour => 1,
        Per::Day => 2,
        Per::Month => 3,
        Per::Run | Per::Lifetime => 4,
    };
    outer == inner || outer == Per::Lifetime || (outer != Per::Run && inner != Per::Run && rank(outer) > rank(inner))
}

#[cfg(test)]
mod tests {
    use super::super::testing::of_tool;

    fn of(limits: &str) -> Vec<String> {
        of_tool(&format!("    limits: [{limits}]\n")).iter().map(|line| line.replace(" 6", "")).collect()
    }

    #[test]
    fn a_limit_that_another_always_reaches_first() {
        assert_eq!(of("{calls: 10, per: minute}, {calls: 5, per: day}"), ["warning idle-limit limits.0"]);
        assert_eq!(of("{calls: 10, per: day, scope: caller}, {calls: 10, per: day}"), ["warning idle-limit limits.0"]);
        assert_eq!(of("{calls: 5, per: run}, {calls: 5, per: lifetime}"), ["warning idle-limit limits.0"]);
        assert_eq!(of("{calls: 7, per: day}, {calls: 9, per: day}"), ["warning idle-limit limits.1"]);
        assert_eq!(of("{calls: 7, per: day}, {calls: 7, per: day}"), ["warning idle-limit limits.1"]);
        assert_eq!(of("{calls: 0, per: day}"), ["warning idle-limit limits.0"]);
    }

    #[test]
    fn limits_that_all_bite() {
        assert_eq!(of("{calls: 10, per: minute}, {calls: 100, per: day}"), [""; 0]);
        assert_eq!(of("{calls: 100, per: day, scope: caller}, {calls: 5, per: run}"), [""; 0]);
        assert_eq!(of("{calls: 10, per: day}, {calls: 5, per: day, scope: caller}"), [""; 0]);
        assert_eq!(of("{calls: 10, per: run}, {calls: 5, per: day}"), [""; 0], "a run may last for days");
    }
}
