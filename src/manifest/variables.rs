//! `env:` of a tool or a source: variables that it declares, and their values.

use std::collections::{BTreeMap, HashMap};

use super::node::Node;
use super::references::Declared;
use super::rule::Rule;
use super::tool::ToolReader;
use crate::call::EnvVar;

/// Declared variables, read.
#[derive(Default)]
pub(super) struct Variables {
    /// The values of those that have one: set, or by default.
    pub(super) values: HashMap<String, String>,
    /// What a reference comes to that is to one of the others.
    pub(super) declared: HashMap<String, Declared>,
}

impl Variables {
    /// The values in the order of their names, for hashes.
    pub(super) fn sorted(&self) -> BTreeMap<&String, &String> {
        self.values.iter().collect()
    }
}

impl ToolReader<'_> {
    /// Looks the declared variables up. One that is required and not set is an error; one that is optional and not set has
    /// no value.
    pub(super) fn variables(&mut self, declared: &[EnvVar], node: &Node, under: &str) -> Variables {
        let mut variables = Variables { values: HashMap::new(), declared: HashMap::new() };
        for (at, var) in declared.iter().enumerate() {
            let path = || ["env".to_owned(), at.to_string()];
            if var.name.is_empty() || var.name.contains(['=', '\0']) {
                self.findings.error(node, &path(), under, "a variable's name is not empty and holds no `=`");
                continue;
            }
            if declared[..at].iter().any(|other| other.name == var.name) {
                let message = format!("variable {} is declared twice", var.name);
                self.findings.error(node, &path(), under, message);
                continue;
            }
            if let Some(value) = self.source.env(&var.name) {
                self.secrets.insert(value.clone());
                variables.values.insert(var.name.clone(), value);
            } else if let Some(default) = &var.default {
                // It stands in the manifest for all to see, so it is no secret.
                variables.values.insert(var.name.clone(), default.clone());
                variables.declared.insert(var.name.clone(), Declared::Default(default.clone()));
            } else if var.required {
                let message = format!("environment variable {} is not set", var.name);
                self.findings.error_of(Rule::MissingSecret, node, &path(), under, message);
            } else {
                variables.declared.insert(var.name.clone(), Declared::Absent);
            }
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use crate::manifest::testing::read;

    fn errors(entry: &str) -> Vec<String> {
        read(&format!("tools:\n  t: {entry}\n")).err().unwrap_or_default()
    }

    #[test]
    fn what_is_required_and_missing_stops_the_start() {
        let of = |env: &str, url: &str| {
            errors(&format!(
                "{{kind: http, description: d, env: [{env}], request: {{url: 'https://a.example/{url}'}}}}"
            ))
        };
        assert_eq!(of("{name: NOT_THERE}", "x"), ["2:41: tools.t.env.0: environment variable NOT_THERE is not set"]);
        assert_eq!(of("{name: NOT_THERE, default: ''}", "${env:NOT_THERE}"), [""; 0]);
        assert_eq!(of("{name: NOT_THERE, required: false}", "x"), [""; 0]);
        assert_eq!(of("{name: KEY, required: true}", "${env:KEY}"), [""; 0]);
        let needed = of("{name: NOT_THERE, required: false}", "${env:NOT_THERE}");
        let says =
            "tools.t.request.url: left out, since NOT_THERE is optional and not set: set it, or give it a default";
        assert!(needed.iter().any(|error| error.ends_with(says)), "{needed:?}");
        let other =
            of("{name: NOT_THERE, required: false}", "{{ nope }}', query: {q: '${env:NOT_THERE}'}, method: 'GET");
        assert!(other.len() == 1 && other[0].contains("no parameter `nope`"), "nothing of what is left out: {other:?}");
        let module = "python_modules: {m: {module: '${env:NOT_THERE}', env: [{name: NOT_THERE, required: false}]}}\n";
        let needed = read(module).err().unwrap();
        assert!(needed.iter().any(|error| error.contains("m.module: left out, since NOT_THERE")), "{needed:?}");
        assert!(of("", "${env:NOT_THERE}")[0].contains("environment variable NOT_THERE is not set"), "not declared");
        assert!(of("{name: A=B, required: false}", "x")[0].contains("a variable's name"));
        assert!(of("{name: KEY}, {name: KEY}", "x")[0].contains("tools.t.env.1: variable KEY is declared twice"));
    }

    #[test]
    fn a_default_is_no_secret() {
        let text = "tools:\n  t: {kind: http, description: d, env: [{name: NOT_THERE, default: metric-units}, {name: KEY}], \
                    request: {url: 'https://a.example/${env:NOT_THERE}/${env:KEY}'}}\n";
        assert_eq!(read(text).unwrap().secrets, ["value-of-key"]);
    }

    #[test]
    fn sources_declare_theirs() {
        for (section, entry) in [("python_modules", "module: tools/m.py"), ("mcp_servers", "command: [x]")] {
            let of = |env: &str| read(&format!("{section}:\n  s: {{{entry}, env: [{env}]}}\n"));
            let error = of("{name: NOT_THERE}").err().unwrap();
            assert!(
                error[0].ends_with(&format!("{section}.s.env.0: environment variable NOT_THERE is not set")),
                "{error:?}"
            );
            let (none, key) = (of("{name: NOT_THERE, required: false}").unwrap(), of("{name: KEY}").unwrap());
            let (none, key_source) = (&none.sources[0], &key.sources[0]);
            assert_eq!((none.rules.env.len(), &key.secrets[..]), (1, &["value-of-key".to_owned()][..]));
            assert_ne!(none.generation, key_source.generation, "another value is another generation");
            assert_eq!(key_source.written["env"], serde_json::json!(["KEY"]));
        }
    }
}
