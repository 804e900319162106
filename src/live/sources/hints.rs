//! Effect hints of foreign sources. MCP calls annotations hints, and untrusted if the server is unknown. Here a hint
//! can only tighten the policy, never loosen it.

use serde_json::Value;

use crate::call::{Effect, JsonObject};

/// The effect under which a tool runs, and the hint that tightened it.
pub(super) fn tightened(effect: Effect, annotations: &JsonObject) -> (Effect, Option<&'static str>) {
    let says = |hint: &str| annotations.get(hint).and_then(Value::as_bool);
    if says("readOnlyHint") == Some(true) {
        return (effect, None);
    }
    // Only a hint that the tool is idempotent keeps it repeatable. Otherwise a repetition may write twice.
    let least = if says("idempotentHint") == Some(true) { Effect::Idempotent } else { Effect::Write };
    match effect {
        Effect::Read if says("readOnlyHint") == Some(false) => (least, Some("readOnlyHint: false")),
        Effect::Read if says("destructiveHint") == Some(true) => (least, Some("destructiveHint: true")),
        Effect::Read | Effect::Idempotent if says("idempotentHint") == Some(false) => {
            (Effect::Write, Some("idempotentHint: false"))
        }
        _ => (effect, None),
    }
}

/// Removes hints that promise more than the effect permits. A reader would take them for the operator's promise.
pub(super) fn without_promises(annotations: &mut JsonObject, effect: Effect) {
    let promises: &[&str] = match effect {
        Effect::Read => &[],
        Effect::Idempotent => &["readOnlyHint"],
        Effect::Write => &["readOnlyHint", "idempotentHint"],
    };
    annotations.retain(|name, value| !(promises.contains(&name.as_str()) && *value == Value::Bool(true)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotations(value: Value) -> JsonObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hints_ask_for_more_care_and_never_for_less() {
        use Effect::{Idempotent, Read, Write};
        for (said, hints, effect, because) in [
            (Write, json!({"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false}), Write, None),
            (Idempotent, json!({"readOnlyHint": true}), Idempotent, None),
            (Read, json!({}), Read, None),
            (Read, json!({"readOnlyHint": true, "destructiveHint": true, "idempotentHint": false}), Read, None),
            (Read, json!({"openWorldHint": true, "title": "Search"}), Read, None),
            (Read, json!({"readOnlyHint": false}), Write, Some("readOnlyHint: false")),
            (Read, json!({"readOnlyHint": false, "idempotentHint": true}), Idempotent, Some("readOnlyHint: false")),
            (Read, json!({"destructiveHint": true}), Write, Some("destructiveHint: true")),
            (Read, json!({"idempotentHint": false}), Write, Some("idempotentHint: false")),
            (Read, json!({"readOnlyHint": "no"}), Read, None),
            (Idempotent, json!({"readOnlyHint": false}), Idempotent, None),
            (Idempotent, json!({"idempotentHint": false}), Write, Some("idempotentHint: false")),
        ] {
            assert_eq!(tightened(said, &annotations(hints.clone())), (effect, because), "{said:?} {hints}");
        }
    }

    #[test]
    fn what_promises_more_than_the_effect_is_not_passed_on() {
        let all = json!({"title": "T", "readOnlyHint": true, "idempotentHint": true, "destructiveHint": false, "openWorldHint": true});
        for (effect, left) in [
            (Effect::Read, vec!["title", "readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"]),
            (Effect::Idempotent, vec!["title", "idempotentHint", "destructiveHint", "openWorldHint"]),
            (Effect::Write, vec!["title", "destructiveHint", "openWorldHint"]),
        ] {
            let mut annotations = annotations(all.clone());
            without_promises(&mut annotations, effect);
            assert_eq!(annotations.keys().collect::<Vec<_>>(), left);
        }
    }
}
