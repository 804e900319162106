//! Lint: a cache key that lacks context fields of the tool.

use super::{Lints, Located};
use crate::call::Effect;
use crate::manifest::node::Node;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

/// Finds a cache whose own list lacks fields that the tool gets. Callers that differ in these
/// fields would share one result.
pub(super) fn check_context(parsed: &ParsedTool, lints: &mut Lints) {
    let cache = Located::new(&parsed.entry, &parsed.path).get("cache");
    let (Some(tool), Some(list)) = (&parsed.tool, cache.and_then(|cache| cache.get("context")))
    else {
        return;
    };
    let keyed: Vec<&str> = list.node.items().iter().filter_map(Node::as_str).collect();
    let fields = tool.definition.context.iter().flatten();
    let missing: Vec<&str> = fields
        .map(String::as_str)
        .filter(|field| !keyed.contains(field))
        .collect();
    if tool.policy.effect == Effect::Read && !missing.is_empty() {
        let message = format!(
            "a result for one value of {} is also served for other values; add the fields that results depend on, \
             or leave this list out to use all fields of the tool",
            missing.join(", ")
        );
        lints.warn_of(Rule::SharedContext, &list, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tool_findings;

    #[test]
    fn cache_keys_need_all_taken_fields() {
        let cache = |list: &str| {
            tool_findings(&format!(
                "    effect: read\n    context: [tenant, user]\n    cache: {{ttl: 1m{list}}}\n"
            ))
        };
        assert_eq!(cache(""), [""; 0]);
        assert_eq!(cache(", context: [tenant, user, region]"), [""; 0]);
        assert_eq!(
            cache(", context: [tenant]"),
            ["warning shared-context cache.context 8"]
        );
        assert_eq!(
            cache(", context: []"),
            ["warning shared-context cache.context 8"]
        );
    }
}
