//! What a foreign source says of its tools' effects. MCP calls annotations hints, and those of a server one does not know
//! untrusted: here they may only ask for more care, never for less.

use serde_json::Value;

use crate::call::{Effect, JsonObject};

/// The effect that a tool is treated as having, and the hint that made it another than the operator's.
pub(super) fn tightened(effect: Effect, annotations: &JsonObject) -> (Effect, Option<&'static str>) {
    let says = |hint: &str| annotations.get(hint).and_then(Value::as_bool);
    if says("readOnlyHint") == Some(true) {
        return (effect, None);
    }
    // What one that may be repeated writes may be written twice.
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

/// Takes out the hints that promise more than the effect does: whoever reads them here would take them for our word.
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
