//! Finds references (`$ref`) that cannot be followed.

use std::collections::HashSet;

use serde_json::Value;

use super::SchemaFault;
use super::graph::Graph;
use super::keywords::local_target;

/// A reference that leads outside the schema.
pub(super) fn find_outside_reference(schema: &Value) -> Option<SchemaFault> {
    let graph = Graph::build(schema, usize::MAX, usize::MAX).ok()?;
    graph.objects().find_map(|(at, part)| {
        let target = part.get("$ref")?.as_str()?;
        let message = format!(
            "`$ref: {target}` leads outside; only references within the schema are followed"
        );
        let fault = SchemaFault::new(format!("{}/$ref", graph.pointer(at)), message);
        (!target.starts_with('#')).then_some(fault)
    })
}

/// A reference that leads to itself for the same value (`{"$ref": "#"}`). Following it would never
/// end.
pub(super) fn find_endless_reference(root: &Value) -> Option<SchemaFault> {
    let graph = Graph::build(root, usize::MAX, usize::MAX).ok()?;
    // Schemas from which every chain of references ends. Each is examined once, even if many
    // references lead to it.
    let mut ends: HashSet<*const Value> = HashSet::new();
    graph.objects().find_map(|(at, part)| {
        let mut seen = HashSet::from([std::ptr::from_ref(part)]);
        let mut target = part;
        while let Some(next) = local_target(root, target) {
            if ends.contains(&std::ptr::from_ref(next)) {
                break;
            }
            if !seen.insert(std::ptr::from_ref(next)) {
                let reference = target["$ref"].as_str().unwrap_or_default();
                return Some(SchemaFault::new(
                    format!("{}/$ref", graph.pointer(at)),
                    format!("`{reference}` leads back to itself and never ends"),
                ));
            }
            target = next;
        }
        ends.extend(seen);
        None
    })
}
