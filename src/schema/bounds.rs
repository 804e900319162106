//! Bounds the size of a schema. The size is measured when a tool is registered.
//!
//! A few lines can describe an enormous schema, because each reference stands for everything that
//! it refers to. The measure visits each written subschema once, and counts the subschemas that it
//! stands for. A recursive subschema is counted once: it is only as deep as the value, and values
//! are bounded.

use std::collections::HashMap;

use serde_json::Value;

use super::SchemaFault;
use super::graph::{Edge, Graph, GraphError};
use super::patterns::{MAX_PATTERN, PatternUse, pattern_use};
use crate::call::json::children;

/// Maximum size of a schema as JSON, in bytes. The schema of a Kubernetes `Deployment` with all
/// descriptions has about 600 KB.
const MAX_BYTES: usize = 2 << 20;
/// Maximum number of values in a schema, of any kind: keywords, names, constants.
const MAX_VALUES: usize = 200_000;
/// Maximum nesting depth of a schema as written. A JSON text has the same bound.
const MAX_NESTING: usize = 128;
/// Maximum number of subschemas after each reference is replaced by its target.
pub(super) const MAX_SUBSCHEMAS: u64 = 50_000;
/// Maximum number of subschemas in a chain for the same value. Each of them takes some stack.
const MAX_CHAIN: usize = 100;
/// Maximum number of states of all patterns together: about 10 MB when compiled.
const MAX_STATES: u64 = 200_000;

/// The cost of validation that the meter does not count itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights {
    /// Steps for each byte of a text.
    pub(super) text: u64,
    /// Steps for each byte of a property's name, if patterns select the schema of a property.
    pub(super) name: u64,
    /// Whether a value of `pattern` needs backtracking.
    pub(super) backtracks: bool,
    /// Whether a pattern cannot be matched.
    pub(super) has_unjudged: bool,
}

/// Measures a schema.
///
/// # Errors
/// The part that is too large, its position, and the bound.
pub(super) fn measure_schema(schema: &Value) -> Result<Weights, SchemaFault> {
    let bytes = json_size(schema);
    if bytes > MAX_BYTES {
        let message = format!(
            "the schema has {bytes} bytes; at most {MAX_BYTES} are allowed: describe less of it"
        );
        return Err(SchemaFault::too_large(String::new(), message));
    }
    let graph = Graph::build(schema, MAX_VALUES, MAX_NESTING).map_err(|fault| {
        let (pointer, message) = match fault {
            GraphError::TooMany(pointer) => {
                (pointer, format!("the schema has more than {MAX_VALUES} values; describe less of it"))
            }
            GraphError::TooDeep(pointer) => {
                (pointer, format!("the schema is nested more than {MAX_NESTING} levels deep; put parts under `$defs`"))
            }
        };
        SchemaFault::too_large(pointer, message)
    })?;
    let all = count_subschemas(&graph)?;
    count_applied_subschemas(&graph, &all)?;
    measure_patterns(&graph)
}

/// The approximate size as JSON, in bytes.
fn json_size(value: &Value) -> usize {
    let (mut open, mut sum) = (vec![value], 0_usize);
    while let Some(value) = open.pop() {
        open.extend(children(value));
        sum += match value {
            Value::String(text) => text.len() + 3,
            Value::Array(_) => 2,
            Value::Object(members) => members.keys().map(|name| name.len() + 4).sum::<usize>() + 2,
            Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        };
    }
    sum
}

/// Groups the subschemas that can be reached: those that lead to each other by edges that `follows`
/// selects form one group. A group leads only to groups before it, and to itself.
fn find_groups(graph: &Graph<'_>, starts: &[usize], follows: fn(&Edge) -> bool) -> Vec<Vec<usize>> {
    // This is Tarjan's algorithm with an explicit stack, because recursion could overflow on a deep
    // schema. A group is complete at the member whose lowest reachable number is its own. The
    // members of complete groups have the highest number, so that nothing else joins them.
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    let (mut groups, mut open, mut stack) = (Vec::new(), Vec::new(), Vec::new());
    let edges_of = |node: usize| graph.edges(node).into_iter().filter(follows);
    for &start in starts {
        let mut found = Some(start).filter(|start| !numbers.contains_key(start));
        loop {
            if let Some(node) = found.take() {
                let number = numbers.len();
                numbers.insert(node, number);
                open.push(node);
                stack.push((node, number, number, edges_of(node)));
            }
            let Some((node, own, low, edges)) = stack.last_mut() else {
                break;
            };
            if let Some(edge) = edges.next() {
                match numbers.get(&edge.to) {
                    None => found = Some(edge.to),
                    Some(number) => *low = (*low).min(*number),
                }
                continue;
            }
            let (node, own, low) = (*node, *own, *low);
            stack.pop();
            if let Some((_, _, above, _)) = stack.last_mut() {
                *above = low.min(*above);
            }
            if low == own {
                let from = open.iter().rposition(|other| *other == node);
                let members = open.split_off(from.unwrap_or_default());
                numbers.extend(members.iter().map(|member| (*member, usize::MAX)));
                groups.push(members);
            }
        }
    }
    groups
}

/// Counts the subschemas that each subschema reachable from the root stands for. Returns the
/// reachable subschemas. In the count of a group, each member and each reference between members
/// counts once.
fn count_subschemas(graph: &Graph<'_>) -> Result<Vec<usize>, SchemaFault> {
    let groups = find_groups(graph, &[graph.root()], |_| true);
    let mut counts: HashMap<usize, u64> = HashMap::new();
    for members in &groups {
        let edges = members.iter().flat_map(|member| graph.edges(*member));
        let count = edges
            .map(|edge| counts.get(&edge.to).copied().unwrap_or(1))
            .fold(members.len() as u64, u64::saturating_add);
        check_subschema_count(graph, members, count)?;
        counts.extend(members.iter().map(|member| (*member, count)));
    }
    Ok(groups.concat())
}

/// For each subschema, counts the subschemas that apply to one and the same value, and the length
/// of their longest chain.
fn count_applied_subschemas(graph: &Graph<'_>, all: &[usize]) -> Result<(), SchemaFault> {
    let mut counted: HashMap<usize, (u64, usize)> = HashMap::new();
    let mut has_loop = false;
    for members in find_groups(graph, all, |edge| edge.same_value) {
        let (mut count, mut chain) = (members.len() as u64, members.len());
        let edges = members.iter().flat_map(|member| graph.edges(*member));
        for edge in edges.filter(|edge| edge.same_value) {
            let below = counted.get(&edge.to);
            has_loop |= below.is_none();
            let (more, longest) = below.copied().unwrap_or((1, 0));
            (count, chain) = (
                count.saturating_add(more),
                chain.max(members.len() + longest),
            );
        }
        check_subschema_count(graph, &members, count)?;
        if chain > MAX_CHAIN {
            let message = format!(
                "a chain of more than {MAX_CHAIN} subschemas applies to the same value here; at most {MAX_CHAIN} are \
                 allowed: use fewer references"
            );
            return Err(too_large(graph, &members, message));
        }
        counted.extend(members.iter().map(|member| (*member, (count, chain))));
    }
    match has_loop {
        true => check_loops(graph, all),
        false => Ok(()),
    }
}

fn too_large(graph: &Graph<'_>, members: &[usize], message: String) -> SchemaFault {
    let first = members.first().copied().unwrap_or_default();
    SchemaFault::too_large(graph.pointer(first), message)
}

fn check_subschema_count(
    graph: &Graph<'_>,
    members: &[usize],
    count: u64,
) -> Result<(), SchemaFault> {
    if count <= MAX_SUBSCHEMAS {
        return Ok(());
    }
    let message = format!(
        "this expands to more than {MAX_SUBSCHEMAS} subschemas, because each `$ref` counts as everything that it \
         refers to; at most {MAX_SUBSCHEMAS} are allowed: refer to large parts less often, or simplify them"
    );
    Err(too_large(graph, members, message))
}

/// Bounds the cycles that apply to one and the same value. The validator stops at a subschema that
/// it is already in, but it walks every path up to there. So this function walks every such path
/// too, with a bound on their number.
fn check_loops(graph: &Graph<'_>, entries: &[usize]) -> Result<(), SchemaFault> {
    let mut remaining = MAX_SUBSCHEMAS;
    for &entry in entries {
        let mut path: Vec<(usize, Vec<Edge>)> = vec![(entry, graph.edges(entry))];
        while let Some((_, edges)) = path.last_mut() {
            let Some(edge) = edges.pop() else {
                path.pop();
                continue;
            };
            if !edge.same_value || path.iter().any(|(node, _)| *node == edge.to) {
                continue;
            }
            remaining = remaining.saturating_sub(1);
            if remaining == 0 || path.len() > MAX_CHAIN {
                let message = "its references form too many cycles; put a reference that closes a cycle under \
                               `properties` or `items`";
                return Err(SchemaFault::too_large(graph.pointer(entry), message.into()));
            }
            path.push((edge.to, graph.edges(edge.to)));
        }
    }
    Ok(())
}

/// Computes the cost of the patterns. Equal patterns are compiled once, so they count once.
fn measure_patterns(graph: &Graph<'_>) -> Result<Weights, SchemaFault> {
    let mut known: HashMap<&str, PatternUse> = HashMap::new();
    let mut weights = Weights {
        text: 1,
        name: 0,
        backtracks: false,
        has_unjudged: false,
    };
    let (mut states, mut has_names) = (0_u64, false);
    for (node, value) in graph.objects() {
        let pattern = value.get("pattern").and_then(Value::as_str);
        let names = value.get("patternProperties").and_then(Value::as_object);
        has_names |= value.get("propertyNames").is_some();
        let mut of_names = 0_u64;
        let all = pattern.into_iter().map(|text| (text, false));
        for (text, is_name) in all.chain(
            names
                .into_iter()
                .flatten()
                .map(|(text, _)| (text.as_str(), true)),
        ) {
            let keyword = if is_name {
                "patternProperties"
            } else {
                "pattern"
            };
            let fault = |message| {
                SchemaFault::too_large(format!("{}/{keyword}", graph.pointer(node)), message)
            };
            if text.len() > MAX_PATTERN {
                let bytes = text.len();
                return Err(fault(format!(
                    "the pattern has {bytes} bytes; at most {MAX_PATTERN} are allowed"
                )));
            }
            let is_new = !known.contains_key(text);
            let (pattern_states, width) =
                match *known.entry(text).or_insert_with(|| pattern_use(text)) {
                    PatternUse::Linear(cost) => (cost.states, cost.width),
                    PatternUse::Backtracking { states } => {
                        weights.backtracks |= !is_name;
                        (states, 1)
                    }
                    PatternUse::Unsupported | PatternUse::Invalid => {
                        weights.has_unjudged = true;
                        continue;
                    }
                };
            if is_new {
                states = states.saturating_add(pattern_states);
            }
            if states > MAX_STATES {
                return Err(fault(format!(
                    "the patterns of the schema need more than {MAX_STATES} states with this one ({pattern_states} for it \
                     alone); at most {MAX_STATES} are allowed: use `maxLength` instead of a counted repetition"
                )));
            }
            if is_name {
                of_names = of_names.saturating_add(width);
            } else {
                weights.text = weights.text.max(width);
            }
        }
        weights.name = weights.name.max(of_names);
    }
    if has_names {
        weights.name = weights.name.saturating_add(weights.text);
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault_text(schema: &Value) -> Option<String> {
        measure_schema(schema).err().map(|fault| fault.to_string())
    }

    #[test]
    fn json_size_is_close_to_the_text() {
        let fields: serde_json::Map<String, Value> = (0..50)
            .map(|n| {
                (
                    format!("field_{n}"),
                    json!({"type": ["string", "null"], "title": "A field", "x-y": n, "z": {}}),
                )
            })
            .collect();
        let schema = json!({"type": "object", "properties": fields});
        let json = schema.to_string().len();
        assert!(
            (json..json + json / 5).contains(&json_size(&schema)),
            "{} for {json}",
            json_size(&schema)
        );
    }

    #[test]
    fn bytes_values_and_nesting_have_exact_bounds() {
        let bytes = |more: usize| json!({"title": "x".repeat(MAX_BYTES - json_size(&json!({"title": ""})) + more)});
        assert_eq!(fault_text(&bytes(0)), None);
        assert!(fault_text(&bytes(1)).unwrap().contains("has 2097153 bytes"));
        // The root, its list, and the items of the list.
        let values = |more: usize| json!({"enum": vec![1; MAX_VALUES - 2 + more]});
        assert_eq!(fault_text(&values(0)), None);
        assert!(
            fault_text(&values(1))
                .unwrap()
                .contains("more than 200000 values")
        );
        let nested = |levels: usize| json!({"default": (1..levels).fold(json!(1), |inner, _| json!([inner]))});
        assert_eq!(fault_text(&nested(MAX_NESTING)), None);
        assert!(
            fault_text(&nested(MAX_NESTING + 1))
                .unwrap()
                .contains("more than 128 levels")
        );
    }

    /// A chain of definitions, each of which refers to the next.
    fn chain(length: usize) -> serde_json::Map<String, Value> {
        let link = |n: usize| {
            if n + 1 < length {
                json!({"$ref": format!("#/$defs/d{}", n + 1)})
            } else {
                json!({})
            }
        };
        (0..length).map(|n| (format!("d{n}"), link(n))).collect()
    }

    #[test]
    fn chains_have_an_exact_bound() {
        let straight = |length: usize| json!({"$ref": "#/$defs/d0", "$defs": chain(length - 1)});
        assert_eq!(fault_text(&straight(100)), None);
        assert!(
            fault_text(&straight(101))
                .unwrap()
                .contains("more than 100 subschemas")
        );
        // The chain is already counted when the longer path to it is walked.
        let twice = |length: usize| {
            let first = json!({"$ref": "#/$defs/d0"});
            json!({"allOf": [first, {"allOf": [{"allOf": [first]}]}], "$defs": chain(length - 4)})
        };
        assert_eq!(fault_text(&twice(100)), None);
        assert!(
            fault_text(&twice(101))
                .unwrap()
                .contains("more than 100 subschemas")
        );
    }

    #[test]
    fn cyclic_paths_are_bounded() {
        let each_other = |count: usize| {
            let others: Vec<Value> = (0..count)
                .map(|n| json!({"$ref": format!("#/$defs/n{n}")}))
                .collect();
            let defs: serde_json::Map<String, Value> = (0..count)
                .map(|n| (format!("n{n}"), json!({"allOf": others})))
                .collect();
            json!({"$ref": "#/$defs/n0", "$defs": defs})
        };
        assert_eq!(fault_text(&each_other(4)), None);
        assert!(
            fault_text(&each_other(8))
                .unwrap()
                .contains("too many cycles")
        );
    }

    #[test]
    fn patterns_have_exact_bounds() {
        let of_length = |length: usize| json!({"pattern": "a".repeat(length)});
        assert_eq!(fault_text(&of_length(MAX_PATTERN)), None);
        assert!(
            fault_text(&of_length(MAX_PATTERN + 1))
                .unwrap()
                .contains("has 8193 bytes")
        );
        // One state for each character. The texts must differ, because an equal text counts once.
        let mut all: Vec<Value> = ('a'..='y')
            .map(|letter| json!({"pattern": letter.to_string().repeat(8000)}))
            .collect();
        all.push(all[0].clone());
        assert_eq!(fault_text(&json!({"anyOf": all})), None);
        all.push(json!({"pattern": "z"}));
        assert!(
            fault_text(&json!({"anyOf": all}))
                .unwrap()
                .contains("more than 200000 states")
        );
    }

    #[test]
    fn name_weight_depends_on_patterns() {
        let weights = |schema: Value| {
            measure_schema(&schema)
                .map(|weights| (weights.text, weights.name))
                .unwrap()
        };
        let (text, _) = weights(json!({"pattern": "a{9}"}));
        assert!(text > 1);
        assert_eq!(
            weights(json!({"propertyNames": {"pattern": "a{9}"}})),
            (text, text)
        );
        assert_eq!(
            weights(json!({"patternProperties": {"a{9}": {}, "b{9}": {}}})),
            (1, 2 * text)
        );
        assert_eq!(
            weights(json!({"allOf": [{"propertyNames": {}}, {"title": ""}]})),
            (1, 1)
        );
    }

    #[test]
    fn references_resolve_in_their_own_resource() {
        // If each member counted all members, they would stand for 90,000 subschemas.
        let defs: serde_json::Map<String, Value> = (0..300)
            .map(|n| {
                let next = json!({"$ref": format!("n{}", (n + 1) % 300)});
                (
                    format!("d{n}"),
                    json!({"$id": format!("https://example.com/n{n}"), "properties": {"a": next}}),
                )
            })
            .collect();
        assert_eq!(
            fault_text(&json!({"$id": "https://example.com/root", "$ref": "n0", "$defs": defs})),
            None
        );
    }
}
