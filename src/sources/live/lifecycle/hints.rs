//! Effect hints of foreign sources. MCP calls annotations hints, and untrusted if the server is
//! unknown. So a hint can only tighten the effect that the manifest declares. With `trust_hints`,
//! the hints of a pinned server also decide the effect where the manifest declares none.

use serde_json::Value;

use crate::call::{Effect, JsonObject};

/// The effect under which a tool runs, and the hint that tightened it.
pub(super) fn tighten_effect(
    effect: Effect,
    annotations: &JsonObject,
) -> (Effect, Option<&'static str>) {
    let hint_value = |hint: &str| annotations.get(hint).and_then(Value::as_bool);
    if hint_value("readOnlyHint") == Some(true) {
        return (effect, None);
    }
    // Only a hint that the tool is idempotent keeps it repeatable. Otherwise a repetition may write
    // twice.
    let least = if hint_value("idempotentHint") == Some(true) {
        Effect::Idempotent
    } else {
        Effect::Write
    };
    match effect {
        Effect::Read if hint_value("readOnlyHint") == Some(false) => {
            (least, Some("readOnlyHint: false"))
        }
        Effect::Read if hint_value("destructiveHint") == Some(true) => {
            (least, Some("destructiveHint: true"))
        }
        Effect::Read | Effect::Idempotent if hint_value("idempotentHint") == Some(false) => {
            (Effect::Write, Some("idempotentHint: false"))
        }
        _ => (effect, None),
    }
}

/// The effect that the hints of a trusted server promise.
pub(super) fn promised_effect(annotations: &JsonObject) -> Option<Effect> {
    let is_hinted = |hint: &str| annotations.get(hint).and_then(Value::as_bool) == Some(true);
    match (is_hinted("readOnlyHint"), is_hinted("idempotentHint")) {
        (true, _) => Some(Effect::Read),
        (false, true) => Some(Effect::Idempotent),
        (false, false) => None,
    }
}

/// Removes hints that promise more than the effect permits. A reader would take them for the
/// operator's promise.
pub(super) fn remove_promises(annotations: &mut JsonObject, effect: Effect) {
    let promises: &[&str] = match effect {
        Effect::Read => &[],
        Effect::Idempotent => &["readOnlyHint"],
        Effect::Write => &["readOnlyHint", "idempotentHint"],
    };
    annotations
        .retain(|name, value| !(promises.contains(&name.as_str()) && *value == Value::Bool(true)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotations(value: Value) -> JsonObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hints_only_tighten_the_effect() {
        use Effect::{Idempotent, Read, Write};
        for (declared, hints, effect, because) in [
            (
                Write,
                json!({"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false}),
                Write,
                None,
            ),
            (Idempotent, json!({"readOnlyHint": true}), Idempotent, None),
            (Read, json!({}), Read, None),
            (
                Read,
                json!({"readOnlyHint": true, "destructiveHint": true, "idempotentHint": false}),
                Read,
                None,
            ),
            (
                Read,
                json!({"openWorldHint": true, "title": "Search"}),
                Read,
                None,
            ),
            (
                Read,
                json!({"readOnlyHint": false}),
                Write,
                Some("readOnlyHint: false"),
            ),
            (
                Read,
                json!({"readOnlyHint": false, "idempotentHint": true}),
                Idempotent,
                Some("readOnlyHint: false"),
            ),
            (
                Read,
                json!({"destructiveHint": true}),
                Write,
                Some("destructiveHint: true"),
            ),
            (
                Read,
                json!({"idempotentHint": false}),
                Write,
                Some("idempotentHint: false"),
            ),
            (Read, json!({"readOnlyHint": "no"}), Read, None),
            (Idempotent, json!({"readOnlyHint": false}), Idempotent, None),
            (
                Idempotent,
                json!({"idempotentHint": false}),
                Write,
                Some("idempotentHint: false"),
            ),
        ] {
            assert_eq!(
                tighten_effect(declared, &annotations(hints.clone())),
                (effect, because),
                "{declared:?} {hints}"
            );
        }
    }

    #[test]
    fn promises_beyond_the_effect_are_removed() {
        let all = json!({"title": "T", "readOnlyHint": true, "idempotentHint": true, "destructiveHint": false, "openWorldHint": true});
        for (effect, left) in [
            (
                Effect::Read,
                vec![
                    "title",
                    "readOnlyHint",
                    "idempotentHint",
                    "destructiveHint",
                    "openWorldHint",
                ],
            ),
            (
                Effect::Idempotent,
                vec![
                    "title",
                    "idempotentHint",
                    "destructiveHint",
                    "openWorldHint",
                ],
            ),
            (
                Effect::Write,
                vec!["title", "destructiveHint", "openWorldHint"],
            ),
        ] {
            let mut annotations = annotations(all.clone());
            remove_promises(&mut annotations, effect);
            assert_eq!(annotations.keys().collect::<Vec<_>>(), left);
        }
    }
}
