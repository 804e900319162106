//! The short forms of policies: `retry: 3`, `cache: 5m`, `approval: true`, and `limits:` with one
//! limit instead of a list.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::sections::{ApprovalEntry, CacheEntry, Retry};
use crate::call::Limit;
use crate::call::units::HumanDuration;

/// `retry:` as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: `decode_retry` reads both forms"
)]
pub(super) enum RetryForm {
    /// All settings.
    Map(Retry),
    /// The number of attempts.
    Attempts(u32),
}

/// `cache:` as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: `decode_cache` reads both forms"
)]
pub(super) enum CacheForm {
    /// All settings.
    Map(CacheEntry),
    /// The time for which a result may be served.
    Ttl(HumanDuration),
}

/// `approval:` as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: `decode_approval` reads both forms"
)]
pub(super) enum ApprovalForm {
    /// All settings.
    Map(ApprovalEntry),
    /// Whether every call waits.
    Flag(bool),
}

/// `limits:` as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: `decode_limits` reads both forms"
)]
pub(super) enum LimitsForm {
    /// Several limits.
    List(Vec<Limit>),
    /// One limit.
    One(Limit),
}

/// Decodes `retry:`.
pub(super) fn decode_retry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Retry>, D::Error> {
    decode_form(
        from,
        Value::is_number,
        |attempts| json!({"attempts": attempts}),
    )
}

/// Decodes `cache:`.
pub(super) fn decode_cache<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<CacheEntry>, D::Error> {
    decode_form(from, Value::is_string, |ttl| json!({"ttl": ttl}))
}

/// Decodes `approval:`.
pub(super) fn decode_approval<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ApprovalEntry>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None => Ok(None),
        Some(Value::Bool(is_on)) => Ok(Some(ApprovalEntry {
            is_on,
            ..ApprovalEntry::default()
        })),
        Some(value) => serde_json::from_value(value)
            .map(Some)
            .map_err(D::Error::custom),
    }
}

/// Decodes `limits:`.
pub(super) fn decode_limits<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<Limit>>, D::Error> {
    decode_form(from, Value::is_object, |limit| json!([limit]))
}

/// Decodes `limits:` of a caller.
pub(super) fn decode_caller_limits<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<Limit>, D::Error> {
    decode_limits(from)?
        .ok_or_else(|| D::Error::custom("the list has no items: write [], or leave the key out"))
}

/// Decodes a value after its short form was written out.
fn decode_form<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
    is_short: fn(&Value) -> bool,
    write_out: fn(Value) -> Value,
) -> Result<Option<T>, D::Error> {
    let Some(value) = Option::<Value>::deserialize(from)? else {
        return Ok(None);
    };
    let value = match is_short(&value) {
        true => write_out(value),
        false => value,
    };
    serde_json::from_value(value)
        .map(Some)
        .map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use crate::call::{Kind, Per, Policy};
    use crate::kinds::HttpClients;
    use crate::manifest::testing::load_text;
    use crate::manifest::{Defaults, read_registered_tool};

    const SHORT: &str = "{effect: read, retry: 3, cache: 5m, limits: {calls: 7, per: day}}";

    fn assert_is_short(policy: &Policy) {
        assert_eq!(policy.retry.attempts, 3);
        assert_eq!(
            policy.cache.as_ref().map(|cache| cache.ttl),
            Some(Duration::from_secs(300))
        );
        assert_eq!(
            policy
                .limits
                .iter()
                .map(|limit| (limit.calls, limit.per))
                .collect::<Vec<_>>(),
            [(7, Per::Day)]
        );
    }

    #[test]
    fn short_forms_stand_wherever_policies_stand() {
        let request = "kind: http, description: d, request: {url: 'https://a.example'}";
        let of_tool = format!(
            "tools:\n  t: {}\n",
            SHORT.replacen('{', &format!("{{{request}, "), 1)
        );
        let of_defaults = format!("defaults: {SHORT}\ntools:\n  t: {{{request}}}\n");
        for text in [of_tool, of_defaults] {
            let manifest = load_text(&text).unwrap_or_else(|errors| panic!("{text}{errors:?}"));
            assert_is_short(&manifest.tools[0].policy);
        }
        for rules in [
            format!("tools: {{a: {SHORT}}}"),
            format!("tools: {{'a*': {SHORT}}}"),
            format!("defaults: {SHORT}"),
        ] {
            let text = format!("mcp_servers:\n  s: {{command: [x], {rules}}}\n");
            let manifest = load_text(&text).unwrap_or_else(|errors| panic!("{text}{errors:?}"));
            assert_is_short(&manifest.sources[0].rules.policy_for("a", Kind::Mcp, None));
        }
        let caller =
            "callers:\n  - {name: a, key: 0123456789abcdef0123, limits: {calls: 7, per: day}}\n";
        let manifest = load_text(caller).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(manifest.callers[0].limits.len(), 1);
    }

    #[test]
    fn registered_tools_have_short_forms() {
        let tool = json!({
            "kind": "http", "description": "d", "request": {"url": "https://a.example"},
            "effect": "read", "retry": 3, "cache": "5m", "limits": {"calls": 7, "per": "day"}
        });
        let read = read_registered_tool("t", &tool, &Defaults::default(), &HttpClients::default());
        assert_is_short(
            &read
                .unwrap_or_else(|findings| panic!("{findings:?}"))
                .0
                .policy,
        );
    }
}
