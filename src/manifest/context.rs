//! `context:` of a tool or a source: the fields of the caller's context that it takes.

use super::decode::Entry;
use super::sections::PolicyEntry;
use crate::call::{ContextFields, Policy};
use crate::kinds::Tool;

/// The declared fields, if their names are valid.
pub(super) fn valid_context_fields(
    declared: Option<Vec<String>>,
    entry: Entry<'_>,
) -> Option<Vec<String>> {
    let fields = declared?;
    match ContextFields::validate_names(&fields) {
        Ok(()) => Some(fields),
        Err((at, message)) => {
            entry.error(&["context", &at.to_string()], message);
            None
        }
    }
}

/// Reports where the declared fields of a finished tool cannot work.
pub(super) fn check_context(tool: &Tool, entry: Entry<'_>) {
    let fields = tool.definition.context.as_deref().unwrap_or_default();
    let parameters = tool.definition.input_schema.get("properties");
    for field in fields {
        let parameter = format!("context.{field}");
        if parameters.is_some_and(|parameters| parameters.get(&parameter).is_some()) {
            let message = format!(
                "a parameter has the name `{parameter}`, which stands for the context field `{field}`: rename one of them"
            );
            entry.error(&["context"], message);
        }
    }
    if !fields.is_empty() && !tool.runner.traits().takes_context_fields {
        entry.warning(&["context"], "has no effect: this tool takes no context");
    }
}

/// Adds the declared fields to the fields of the cache key, if that list comes from the manifest's
/// defaults or the program. Such a list was chosen without knowledge of the fields that this tool
/// takes.
pub(super) fn add_context_to_cache_key(
    policy: &mut Policy,
    entry: &PolicyEntry,
    fields: Option<&[String]>,
) {
    if entry.cache.is_none()
        && let Some(key_fields) = policy
            .cache
            .as_mut()
            .and_then(|cache| cache.context.as_mut())
    {
        let missing = fields
            .unwrap_or_default()
            .iter()
            .filter(|field| !key_fields.contains(field))
            .cloned();
        let missing: Vec<String> = missing.collect();
        key_fields.extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use crate::call::Kind;
    use crate::manifest::testing::{check_text, load_text};

    fn errors(entry: &str) -> Vec<String> {
        load_text(&format!("tools:\n  t: {entry}\n"))
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn invalid_context_fields_are_errors() {
        let http = |keys: &str, url: &str| {
            format!(
                "{{kind: http, description: d{keys}, request: {{url: 'https://a.example/{url}'}}}}"
            )
        };
        for (entry, expected) in [
            (
                http("", "{{ context.tenant }}"),
                "tools.t.request.url: `{{ context.tenant }}`: the tool does not take this field",
            ),
            (http(", context: [user]", "{{ context.tenant }}"), "write `context: [user, tenant]`"),
            (http(", context: [tenants]", "{{ context.tenant }}"), "did you mean `context.tenants`?"),
            (http(", context: [user.id]", "x"), "tools.t.context.0: the name of a context field has"),
            (http(", context: [a, a]", "x"), "tools.t.context.1: the context field `a` is declared twice"),
            (http(", context: ['${env:KEY}']", "x"), "tools.t.context.0: callers can see this"),
            (http(", context: tenant", "x"), "tools.t.context: a list is expected here: write `context: [tenant]`"),
            (
                http(
                    ", context: [tenant], parameters: {context.tenant: {type: string, default: x}}",
                    "{{ context.tenant }}",
                ),
                "tools.t.context: a parameter has the name `context.tenant`",
            ),
            (
                "{kind: sql, description: d, database: 'sqlite://x.db', statement: 'select :context.tenant'}".into(),
                "`:context.tenant`: the tool does not take this field of the context; write `context: [tenant]`",
            ),
            (
                "{kind: command, description: d, command: [x, '{{ context.tenant }}']}".into(),
                "write `context: [tenant]`",
            ),
        ] {
            let errors = errors(&entry);
            assert!(errors.iter().any(|error| error.contains(expected)), "{entry}: {errors:?}");
        }
        let parameter = http(
            ", parameters: {context.tenant: {type: string}}",
            "{{ context.tenant }}",
        );
        assert_eq!(
            errors(&parameter),
            [""; 0],
            "a parameter that has the name already keeps it"
        );
        let module = "python_modules: {m: {module: tools/m.py, context: [a.b], tools: {f: {context: [c.d]}}}}\n";
        let errors = load_text(module).err().unwrap();
        for location in [
            "python_modules.m.context.0",
            "python_modules.m.tools.f.context.0",
        ] {
            assert!(
                errors.iter().any(|error| error.contains(location)),
                "{location}: {errors:?}"
            );
        }
        let server = "mcp_servers: {s: {command: [x], context: ['${env:KEY}']}}\n";
        assert!(
            load_text(server).err().unwrap()[0].contains("mcp_servers.s.context.0"),
            "references are not resolved there"
        );
    }

    #[test]
    fn source_context_applies_to_its_tools() {
        let text = "mcp_servers:\n  s: {command: [x], context: [tenant], tools: {own: {context: [user]}, none: {context: []}, other: {timeout: 2s}}}\n";
        let source = load_text(text).unwrap().sources.remove(0);
        let of = |name: &str| source.rules.tools[name].context.clone().unwrap();
        assert_eq!(source.rules.context, Some(vec!["tenant".to_owned()]));
        assert_eq!(
            [of("own"), of("none"), of("other")],
            [vec!["user".to_owned()], vec![], vec!["tenant".to_owned()]]
        );
    }

    #[test]
    fn shared_caches_keep_own_context_fields() {
        for cached in [
            "defaults: {cache: {ttl: 5m, context: [tenant]}}, tools: {",
            "tools: {'*': {cache: {ttl: 5m, context: [tenant]}}, ",
        ] {
            let text = format!(
                "mcp_servers:\n  s: {{command: [x], {cached}f: {{effect: read, context: [tenant, user]}}}}}}\n"
            );
            let manifest = load_text(&text).unwrap();
            let policy = manifest.sources[0].rules.policy_for("f", Kind::Mcp, None);
            let fields = policy.cache.unwrap().context.unwrap();
            assert_eq!(fields, ["tenant", "user"], "{cached}");
        }
    }

    #[test]
    fn context_without_effect_is_a_warning() {
        let found = check_text("tools:\n  calculator: {kind: native, context: [tenant]}\n");
        let messages: Vec<(&str, &str)> = found
            .iter()
            .map(|one| (&*one.path, &*one.message))
            .collect();
        assert!(
            messages.contains(&(
                "tools.calculator.context",
                "has no effect: this tool takes no context"
            )),
            "{found:?}"
        );
    }
}
