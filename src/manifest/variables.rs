//! Reads `env:` of a tool or a source: the variables that it declares, and their values.

use std::collections::{BTreeMap, HashMap};

use super::decode::Entry;
use super::finding::{Severity, join_path};
use super::inputs::Inputs;
use super::missing_secrets;
use super::references::UnsetVariable;
use super::rule::Rule;
use crate::call::EnvVar;

/// The declared variables with their values.
#[derive(Default)]
pub(super) struct Variables {
    /// Values that are set, or defaults.
    pub(super) values: HashMap<String, String>,
    /// What a reference to one of the other variables results in.
    pub(super) unset: HashMap<String, UnsetVariable>,
}

impl Variables {
    /// The values sorted by name, for hashes.
    pub(super) fn sorted_values(&self) -> BTreeMap<&String, &String> {
        self.values.iter().collect()
    }
}

/// Looks up the declared variables. A required variable that is not set is an error. An optional
/// variable that is not set has no value.
pub(super) fn look_up_variables(
    inputs: &Inputs<'_>,
    declared: &[EnvVar],
    entry: Entry<'_>,
) -> Variables {
    let mut variables = Variables::default();
    for (at, var) in declared.iter().enumerate() {
        let keys = ["env", &at.to_string()];
        if var.name.is_empty() || var.name.contains(['=', '\0']) {
            let message = "a variable's name must not be empty and must not contain `=`";
            entry.error(&keys, message);
            continue;
        }
        if declared[..at].iter().any(|other| other.name == var.name) {
            entry.error(&keys, format!("variable {} is declared twice", var.name));
            continue;
        }
        let (value, unset) = match (inputs.input.env_var(&var.name), &var.default) {
            (Some(value), _) => {
                inputs.secrets.insert(value.clone());
                (Some(value), None)
            }
            // The default is written in the manifest, so it is not a secret.
            (None, Some(default)) => (
                Some(default.clone()),
                Some(UnsetVariable::Default(default.clone())),
            ),
            (None, None) if var.required => {
                let message = format!("environment variable {} is not set", var.name);
                if inputs.input.accepts_missing_secrets() {
                    let path = join_path(entry.path, &keys);
                    let unchecked = missing_secrets::unchecked_value(entry.node, &path, &message);
                    entry.findings.push(unchecked);
                } else {
                    entry.report(Severity::Error, Rule::MissingSecret, &keys, message);
                }
                (None, Some(UnsetVariable::Missing))
            }
            (None, None) => (None, Some(UnsetVariable::Absent)),
        };
        let name = || var.name.clone();
        variables.values.extend(value.map(|value| (name(), value)));
        variables.unset.extend(unset.map(|unset| (name(), unset)));
    }
    variables
}

#[cfg(test)]
mod tests {
    use crate::manifest::testing::load_text;

    fn errors(entry: &str) -> Vec<String> {
        load_text(&format!("tools:\n  t: {entry}\n"))
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn required_variable_must_be_set() {
        let of = |env: &str, url: &str| {
            errors(&format!(
                "{{kind: http, description: d, env: [{env}], request: {{url: 'https://a.example/{url}'}}}}"
            ))
        };
        assert_eq!(
            of("{name: NOT_THERE}", "x"),
            ["2:41: tools.t.env.0: environment variable NOT_THERE is not set"]
        );
        assert_eq!(
            of("{name: NOT_THERE, default: ''}", "${env:NOT_THERE}"),
            [""; 0]
        );
        assert_eq!(of("{name: NOT_THERE, required: false}", "x"), [""; 0]);
        assert_eq!(of("{name: KEY, required: true}", "${env:KEY}"), [""; 0]);
        let needed = of("{name: NOT_THERE, required: false}", "${env:NOT_THERE}");
        let expected = "tools.t.request.url: left out, since NOT_THERE is optional and not set: set it, or give it a default";
        assert!(
            needed.iter().any(|error| error.ends_with(expected)),
            "{needed:?}"
        );
        let other = of(
            "{name: NOT_THERE, required: false}",
            "{{ nope }}', query: {q: '${env:NOT_THERE}'}, method: 'GET",
        );
        assert!(
            other.len() == 1 && other[0].contains("no parameter `nope`"),
            "nothing of what is left out: {other:?}"
        );
        let module = "python_modules: {m: {module: '${env:NOT_THERE}', env: [{name: NOT_THERE, required: false}]}}\n";
        let needed = load_text(module).err().unwrap();
        assert!(
            needed
                .iter()
                .any(|error| error.contains("m.module: left out, since NOT_THERE")),
            "{needed:?}"
        );
        assert!(
            of("", "${env:NOT_THERE}")[0].contains("environment variable NOT_THERE is not set"),
            "not declared"
        );
        assert!(of("{name: A=B, required: false}", "x")[0].contains("a variable's name"));
        assert!(
            of("{name: KEY}, {name: KEY}", "x")[0]
                .contains("tools.t.env.1: variable KEY is declared twice")
        );
    }

    #[test]
    fn a_missing_variable_is_reported_once() {
        let entry = |url: &str| {
            format!(
                "{{kind: http, description: d, env: [{{name: NOT_THERE}}], request: {{url: '{url}', headers: {{a: '${{env:NOT_THERE}}'}}}}}}"
            )
        };
        assert_eq!(
            errors(&entry("https://a.example/")),
            ["2:41: tools.t.env.0: environment variable NOT_THERE is not set"]
        );
        let both = errors(&entry("https://a.example/{{ nope }}"));
        assert_eq!(both.len(), 2, "other faults are reported too: {both:?}");
    }

    #[test]
    fn command_refuses_absent_items() {
        let command = |items: &str| {
            errors(&format!(
                "{{kind: command, description: d, env: [{{name: NOT_THERE, required: false}}], command: [/bin/true, {items}]}}"
            ))
        };
        for (items, location) in [
            ("--token, '${env:NOT_THERE}', file", "tools.t.command.2"),
            ("'a=${env:NOT_THERE}'", "tools.t.command.1"),
        ] {
            let found = command(items);
            assert_eq!(found.len(), 1, "{found:?}");
            let expected = "NOT_THERE is optional and not set, so the following items would move to its position: give \
                            NOT_THERE a default, or declare it with `required: true`";
            assert!(
                found[0].contains(&format!("{location}: {expected}")),
                "{found:?}"
            );
        }
        let server = load_text(
            "mcp_servers: {s: {command: [x, --token, '${env:NOT_THERE}', y], env: [{name: NOT_THERE, required: false}]}}\n",
        );
        let found = server.err().unwrap();
        assert!(
            found.len() == 1 && found[0].contains("mcp_servers.s.command.2: NOT_THERE is optional"),
            "{found:?}"
        );
    }

    #[test]
    fn absent_items_of_data_become_null() {
        let text = "python_modules: {m: {module: tools/m.py, object: C, env: [{name: NOT_THERE, required: false}], \
                    init: {list: [a, '${env:NOT_THERE}', b], gone: '${env:NOT_THERE}'}, functions: [f, '${env:NOT_THERE}']}}\n";
        let source = load_text(text).unwrap().sources.remove(0);
        let crate::sources::SourceSettings::Module(settings) = source.settings else {
            panic!("a module")
        };
        assert_eq!(
            serde_json::Value::Object(settings.init),
            serde_json::json!({"list": ["a", null, "b"]})
        );
        assert_eq!(settings.functions, Some(vec!["f".to_owned()]));
    }

    #[test]
    fn references_inside_placeholders_are_errors() {
        let found = errors(
            "{kind: http, description: d, parameters: {x: {type: string}}, request: {url: 'https://a.example/', body: '{{ ${env:KEY} }}'}}",
        );
        assert!(
            found[0]
                .contains("tools.t.request.body: a reference is not allowed between `{{` and `}}`"),
            "{found:?}"
        );
    }

    #[test]
    fn overridden_variable_is_a_warning() {
        for (section, entry) in [
            ("python_modules", "module: tools/m.py"),
            ("mcp_servers", "command: [x]"),
        ] {
            let of = |environment: &str| {
                let text = format!(
                    "{section}:\n  s: {{{entry}, env: [{{name: KEY}}], environment: {{{environment}}}}}\n"
                );
                let found = crate::manifest::testing::check_text(&text);
                found
                    .into_iter()
                    .filter(|one| one.path.ends_with(".environment.KEY"))
                    .count()
            };
            assert_eq!(
                (of("KEY: other"), of("KEY: '${env:KEY}'"), of("OTHER: x")),
                (1, 0, 0),
                "{section}"
            );
        }
    }

    #[test]
    fn variable_defaults_are_not_secrets() {
        let text = "tools:\n  t: {kind: http, description: d, env: [{name: NOT_THERE, default: metric-units}, {name: KEY}], \
                    request: {url: 'https://a.example/${env:NOT_THERE}/${env:KEY}'}}\n";
        assert_eq!(load_text(text).unwrap().secrets, ["value-of-key"]);
    }

    #[test]
    fn sources_declare_variables() {
        for (section, entry) in [
            ("python_modules", "module: tools/m.py"),
            ("mcp_servers", "command: [x]"),
        ] {
            let of =
                |env: &str| load_text(&format!("{section}:\n  s: {{{entry}, env: [{env}]}}\n"));
            let error = of("{name: NOT_THERE}").err().unwrap();
            assert!(
                error[0].ends_with(&format!(
                    "{section}.s.env.0: environment variable NOT_THERE is not set"
                )),
                "{error:?}"
            );
            let (none, key) = (
                of("{name: NOT_THERE, required: false}").unwrap(),
                of("{name: KEY}").unwrap(),
            );
            let (none, key_source) = (&none.sources[0], &key.sources[0]);
            assert_eq!(
                (none.rules.env.len(), &key.secrets[..]),
                (1, &["value-of-key".to_owned()][..])
            );
            assert_ne!(
                none.generation, key_source.generation,
                "another value is another generation"
            );
            assert_eq!(
                key_source.written_settings["env"],
                serde_json::json!(["KEY"])
            );
        }
    }
}
