//! One entry of `python_modules:`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::brought::{Checks, Given, absolute};
use super::context::keep_apart;
use super::decode::{fields, join};
use super::load::WrittenTool;
use super::node::Node;
use super::reference_places::Owner;
use super::references::explain;
use super::sections::PolicyEntry;
use super::source::{DeclaredSource, SourceRules};
use super::tool::ToolReader;
use crate::call::units::Time;
use crate::call::{EnvVar, JsonObject, Kind, NameError, ToolName};
use crate::tools::SourceSettings;
use crate::tools::python::{Interpreter, ModulePath, ModuleSettings};

/// The default time for a worker to load its module. Imports of large libraries take many seconds.
const START_TIME: Duration = Duration::from_secs(60);
/// Keys that define what runs.
const RUNS: [&str; 7] = ["module", "interpreter", "requirements", "object", "share", "init", "environment"];

/// Keys that are read separately.
const APART: [&str; 3] = ["tools", "context", "env"];

/// One entry of `python_modules:`: a Python file or module with tools.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModuleEntry {
    /// A file (ends in `.py` or contains `/`), relative to the manifest, or a module to import.
    #[schemars(extend("examples" = ["./trips.py"]))]
    module: Option<String>,
    /// The Python program, 3.9 or newer. Either `interpreter` or `requirements`.
    #[schemars(extend("examples" = ["./venv/bin/python"]), extend("default" = "python3"))]
    interpreter: Option<String>,
    /// A requirements file. The service builds a virtual environment from it once.
    #[schemars(extend("examples" = ["./requirements.txt"]))]
    requirements: Option<String>,
    /// Worker processes for functions that are not `async`.
    #[schemars(extend("examples" = [2]), extend("default" = 1))]
    workers: Option<usize>,
    /// Text before the name of every tool.
    #[schemars(extend("examples" = ["travel_"]))]
    prefix: String,
    /// Names of the functions that become tools. Default: every decorated tool. Plain typed functions need this list.
    #[schemars(extend("examples" = [["find_flights"]]))]
    functions: Option<Vec<String>>,
    /// A class. Its methods are the tools, and each worker has one instance.
    #[schemars(extend("examples" = ["DatabaseTools"]))]
    object: Option<String>,
    /// Runs blocking and async methods of `object` in one process, on one instance.
    #[schemars(extend("examples" = [true]))]
    share: bool,
    /// Keyword arguments for the constructor of `object`.
    #[schemars(extend("examples" = [serde_json::json!({"connection_string": "${env:DB_URL}"})]))]
    init: Option<JsonObject>,
    /// Environment variables of the workers. They inherit no other.
    #[schemars(extend("examples" = [serde_json::json!({"LANG": "C.UTF-8"})]))]
    environment: BTreeMap<String, String>,
    /// Time for a worker to load the module.
    #[schemars(extend("examples" = ["60s"]), extend("default" = "60s"))]
    start_timeout: Option<Time>,
    /// Policy of single tools, by the module's own name of a tool.
    // Read separately for each tool.
    #[schemars(with = "BTreeMap<String, JsonObject>")]
    tools: Option<serde_json::Value>,
    /// Fields of the request's `context` that the module's tools take.
    // Read before references are replaced.
    #[schemars(with = "Option<Vec<String>>", extend("examples" = [["tenant"]]))]
    context: Option<serde_json::Value>,
    /// Environment variables that the module needs. The workers are given them.
    #[schemars(with = "Vec<EnvVar>", extend("examples" = [serde_json::json!([{"name": "API_KEY"}])]))]
    env: Option<serde_json::Value>,
}

impl ToolReader<'_> {
    /// Reads one entry, and the entries of its tools. Faults are added to the findings.
    pub(super) fn module(&mut self, name: &str, written: &Node) -> Option<(DeclaredSource, Vec<WrittenTool>)> {
        let under = join("python_modules", &[name.to_owned()]);
        if ToolName::parse(name).is_err() {
            let message = "a module's name here has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..";
            self.findings.error(written, &[], &under, message);
            return None;
        }
        if written.entries().is_none() {
            self.findings.error(written, &[], &under, "a map is expected here: module, workers, functions, tools …");
            return None;
        }
        let before = self.findings.0.len();
        let known = fields::<ModuleEntry>();
        self.findings.unknown_keys(written, &under, known);
        let given = self.given(written, &under);
        self.warn_of_overridden(&given.env, written, &under);
        let mut node = written.filtered(|key| known.contains(&key) && !APART.contains(&key));
        let left_out = self.resolve(&mut node, &under, Owner::Source, given.variables.declared.clone());
        let said: ModuleEntry = self.findings.decode_keys(&node, &under).unwrap_or_default();

        let (prefix, context, env) = (said.prefix.clone(), given.context.clone(), given.env.clone());
        let mut rules = SourceRules { prefix, context, env, ..SourceRules::default() };
        if ToolName::parse(&format!("{}x", said.prefix)).is_err() {
            self.findings.error(&node, &["prefix".into()], &under, NameError.to_string());
        }
        self.govern(Kind::Python, &mut rules.policy, &PolicyEntry::default(), &node, &under);
        keep_apart(&mut rules.policy, &PolicyEntry::default(), rules.context.as_deref());
        let tools = self.tools_of(Kind::Python, written, &under, &PolicyEntry::default(), &mut rules);
        rules.asked = said.functions.clone().unwrap_or_default();
        let settings = self.module_settings(name, said, &given, &node, &under);
        if self.has_errors_since(before) {
            explain(left_out, before, self.findings);
            return None;
        }
        let runs = |node: &Node| node.filtered(|key| RUNS.contains(&key)).to_json();
        let declared = DeclaredSource {
            settings: SourceSettings::Python(settings?.into()),
            rules,
            written: given.written(runs(written)),
            generation: given.generation(&runs(&node)),
        };
        Some((declared, tools))
    }

    fn module_settings(
        &mut self,
        name: &str,
        said: ModuleEntry,
        given: &Given,
        node: &Node,
        under: &str,
    ) -> Option<ModuleSettings> {
        let ModuleEntry { module, interpreter, requirements, workers, functions, object, init, .. } = said;
        let mut checks = Checks { findings: &mut *self.findings, node, under };
        if workers == Some(0) {
            checks.error("workers", "at least one worker must be there to run something; leave it out for one");
        }
        if functions.as_ref().is_some_and(Vec::is_empty) {
            checks
                .error("functions", "names no function, so there would be no tool; leave it out for every tool found");
        }
        if init.is_some() && object.is_none() {
            checks.error("init", "these are arguments for a class, and `object` names none; add it, or leave init out");
        }
        if said.share && object.is_none() {
            checks
                .error("share", "it is an object that is shared, and `object` names none; add it, or leave share out");
        }
        if said.share && workers.is_some_and(|workers| workers > 1) {
            checks.error("workers", "`share: true` keeps one object in one process: leave workers out, or share");
        }
        if object.as_ref().is_some_and(|object| object.trim().is_empty()) {
            checks.error("object", "the name of a class in the module is expected here");
        }
        if said.start_timeout.is_some_and(|time| time.0.is_zero()) {
            checks.error("start_timeout", "in no time at all nothing is loaded; leave it out for 60s");
        }
        let exists = |path: &Path| self.source.is_file(path);
        let interpreter = match (interpreter, requirements) {
            (Some(_), Some(_)) => {
                let message = "interpreter and requirements both say what loads the module: keep one";
                checks.error("requirements", message);
                None
            }
            (None, Some(file)) => {
                let path = checks.file("requirements", self.base, &file, &exists);
                path.map(Interpreter::Requirements)
            }
            (Some(program), None) if program.contains('/') => {
                checks.file("interpreter", self.base, &program, &exists).map(Interpreter::Program)
            }
            (Some(program), None) if program.trim().is_empty() => {
                checks.error("interpreter", "a program is expected here, e.g. python3 or ./venv/bin/python");
                None
            }
            (Some(program), None) => Some(Interpreter::Program(program.into())),
            (None, None) => Some(Interpreter::Program("python3".into())),
        };
        let module = match module {
            None => {
                if node.get("module").is_none() {
                    let message = "module is missing: a file, e.g. ./tools/weather.py, or an importable module";
                    checks.findings.error(node, &[], under, message);
                }
                None
            }
            Some(file) if is_file(&file) => checks.file("module", self.base, &file, &exists).map(ModulePath::File),
            Some(module) if is_importable(&module) => Some(ModulePath::Name(module)),
            Some(_) => {
                let message =
                    "neither a file (it would end in .py or contain a /) nor a module's name, e.g. pkg.module";
                checks.error("module", message);
                None
            }
        };
        Some(ModuleSettings {
            name: name.to_owned(),
            module: module?,
            interpreter: interpreter?,
            workers: workers.unwrap_or(1).max(1),
            functions,
            object,
            share: said.share,
            init: init.unwrap_or_default(),
            environment: given.environment(said.environment),
            workdir: absolute(self.base),
            // The program that starts the service chooses where it may write.
            venvs: PathBuf::new(),
            start_timeout: said.start_timeout.map_or(START_TIME, |time| time.0),
        })
    }
}

/// Whether `module:` names a file.
fn is_file(module: &str) -> bool {
    module.contains('/') || Path::new(module).extension().is_some_and(|extension| extension == "py")
}

/// Whether Python could import a module of this name.
fn is_importable(module: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric())
    };
    module.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Effect, Per};
    use crate::manifest::testing::{read, rules};

    fn module(entry: &str) -> Result<DeclaredSource, Vec<String>> {
        read(&format!("python_modules:\n  m: {entry}\n")).map(|mut manifest| manifest.sources.remove(0))
    }

    fn settings(entry: &str) -> ModuleSettings {
        match module(entry).unwrap_or_else(|errors| panic!("{errors:?}")).settings {
            SourceSettings::Python(settings) => *settings,
            SourceSettings::Mcp(_) | SourceSettings::Program { .. } => panic!("not a module"),
        }
    }

    #[test]
    fn every_key_is_read() {
        let entry = "{module: ./tools/m.py, interpreter: ./venv/bin/python, workers: 2, prefix: w_, functions: [f], object: C, \
                     init: {url: \"${env:KEY}\", n: 1}, environment: {K: \"${env:KEY}\"}, start_timeout: 5s, \
                     tools: {f: {effect: read, timeout: 9s, cache: {ttl: 5m}, limits: [{calls: 1, per: day}], aliases: [g], \
                     tags: [t], description: Does it., annotations: {title: T}, result_as_answer: true, capture: digest}}}";
        let declared = module(entry).unwrap();
        let SourceSettings::Python(module) = &declared.settings else { panic!("not a module") };
        assert_eq!(
            **module,
            ModuleSettings {
                name: "m".into(),
                module: ModulePath::File("/etc/crib/tools/m.py".into()),
                interpreter: Interpreter::Program("/etc/crib/venv/bin/python".into()),
                workers: 2,
                functions: Some(vec!["f".into()]),
                object: Some("C".into()),
                share: false,
                init: serde_json::from_str(r#"{"url": "value-of-key", "n": 1}"#).unwrap(),
                environment: [("K".to_owned(), "value-of-key".to_owned())].into(),
                workdir: "/etc/crib".into(),
                venvs: PathBuf::new(),
                start_timeout: Duration::from_secs(5),
            }
        );
        let rules = &declared.rules.tools["f"];
        assert_eq!((rules.policy.effect, rules.policy.timeout), (Effect::Read, Duration::from_secs(9)));
        assert_eq!((rules.policy.limits[0].per, rules.policy.cache.is_some()), (Per::Day, true));
        assert_eq!((rules.description.as_deref(), rules.result_as_answer), (Some("Does it."), Some(true)));
        assert_eq!((declared.rules.prefix.as_str(), &declared.rules.asked[..]), ("w_", &["f".to_owned()][..]));
        assert!(!declared.written.to_string().contains("value-of-key"), "{}", declared.written);
        let read = read(&format!("python_modules:\n  m: {entry}\n")).unwrap();
        assert_eq!(read.secrets, ["value-of-key"]);
    }

    #[test]
    fn what_goes_without_saying() {
        let plain = settings("{module: strands_tools.calculator}");
        assert_eq!(plain.module, ModulePath::Name("strands_tools.calculator".into()));
        assert_eq!((plain.interpreter, plain.workers), (Interpreter::Program("python3".into()), 1));
        assert_eq!((plain.start_timeout, plain.functions), (START_TIME, None));
        let required = settings("{module: tools/m.py, requirements: requirements.txt}");
        assert_eq!(required.interpreter, Interpreter::Requirements("/etc/crib/requirements.txt".into()));
    }

    #[test]
    fn defaults_hold_for_tools_that_are_not_named() {
        let text = "defaults: {timeout: 7s, effect: read}\npython_modules: {m: {module: tools/m.py, tools: {f: {effect: write}}}}\n";
        let declared = read(text).unwrap().sources.remove(0);
        assert_eq!((declared.rules.policy.timeout.as_secs(), declared.rules.policy.effect), (7, Effect::Read));
        let named = &declared.rules.tools["f"].policy;
        assert_eq!((named.timeout.as_secs(), named.effect), (7, Effect::Write));
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        for (entry, says) in [
            ("{workers: 2}", "2:6: python_modules.m: module is missing"),
            ("{module: tools/n.py}", "2:7: python_modules.m.module: there is no file /etc/crib/tools/n.py"),
            ("{module: ./tools}", "python_modules.m.module: there is no file"),
            ("{module: \"not a module\"}", "python_modules.m.module: neither a file"),
            ("{module: tools/m.py, interpreter: ./nope/python}", "python_modules.m.interpreter: there is no file"),
            ("{module: tools/m.py, requirements: nope.txt}", "python_modules.m.requirements: there is no file"),
            (
                "{module: tools/m.py, requirements: requirements.txt, interpreter: python3}",
                "2:27: python_modules.m.requirements: interpreter and requirements",
            ),
            ("{module: tools/m.py, workers: 0}", "python_modules.m.workers: at least one"),
            ("{module: tools/m.py, workers: -1}", "python_modules.m.workers: invalid value"),
            ("{module: tools/m.py, functions: []}", "python_modules.m.functions: names no function"),
            ("{module: tools/m.py, init: {a: 1}}", "python_modules.m.init: these are arguments for a class"),
            ("{module: tools/m.py, share: true}", "python_modules.m.share: it is an object that is shared"),
            (
                "{module: tools/m.py, object: C, share: true, workers: 2}",
                "python_modules.m.workers: `share: true` keeps one",
            ),
            ("{module: tools/m.py, objekt: C}", "python_modules.m.objekt: unknown key, did you mean object?"),
            ("{module: tools/m.py, start_timeout: 0s}", "python_modules.m.start_timeout: in no time"),
            ("{module: tools/m.py, start_timeout: soon}", "python_modules.m.start_timeout"),
            ("{module: tools/m.py, prefix: 'a b'}", "python_modules.m.prefix: a tool name has"),
            (
                "{module: tools/m.py, environment: {K: \"${env:NOT_THERE}\"}}",
                "python_modules.m.environment.K: environment variable NOT_THERE",
            ),
            ("{module: tools/m.py, tools: [f]}", "python_modules.m.tools: a map"),
            ("{module: tools/m.py, tools: {f: read}}", "python_modules.m.tools.f: a map"),
            (
                "{module: tools/m.py, tools: {f: {efect: read}}}",
                "python_modules.m.tools.f.efect: unknown key, did you mean effect?",
            ),
            (
                "{module: tools/m.py, tools: {f: {input_schema: {}}}}",
                "python_modules.m.tools.f.input_schema: unknown key",
            ),
            ("{module: tools/m.py, tools: {f: {timeout: soon}}}", "python_modules.m.tools.f.timeout"),
            (
                "{module: tools/m.py, tools: {f: {description: \"${env:KEY}\"}}}",
                "python_modules.m.tools.f.description: callers see this",
            ),
            ("{module: tools/m.py, tools: {'f g': {}}}", "python_modules.m.tools.f g: a tool name has"),
            ("{module: tools/m.py, tools: {f: {aliases: [g]}, g: {}}}", "python_modules.m.tools.g: the name is taken"),
            ("tools/m.py", "python_modules.m: a map is expected"),
        ] {
            let errors = module(entry).err().unwrap_or_default();
            assert!(errors.iter().any(|error| error.contains(says)), "{entry}: {errors:?}");
        }
        let errors = read("python_modules: {a/b: {module: tools/m.py}}\n").err().unwrap();
        assert!(errors[0].contains("a module's name"), "{errors:?}");
        let errors = read(
            "tools: {f: {kind: native, use: calculator}}\npython_modules: {m: {module: tools/m.py, tools: {f: {}}}}\n",
        );
        assert!(errors.err().unwrap()[0].ends_with("the name is taken: 1:9"));
        assert!(read("python_modules: [m]\n").err().unwrap()[0].contains("a map of modules"));
    }

    #[test]
    fn lints_look_at_what_a_module_is_given_and_at_its_policies() {
        let module = |keys: &str| format!("python_modules:\n  m: {{module: tools/m.py{keys}}}\n");
        assert_eq!(rules(&module("")), [""; 0]);
        assert_eq!(
            rules(&module(", object: C, init: {password: correct-horse}, environment: {API_TOKEN: tok-123456789}")),
            ["literal-secret python_modules.m.init.password", "literal-secret python_modules.m.environment.API_TOKEN"]
        );
        let tools = module(
            ", prefix: w_, tools: {f: {effect: read}, g: {retry: {attempts: 3}}, h: {timeout: 9s, deadline: 3s}}",
        );
        let found = rules(&tools);
        for expected in [
            "uncached-read python_modules.m.tools.f.effect",
            "ineffective python_modules.m.tools.g.retry",
            "ineffective python_modules.m.tools.h.timeout",
        ] {
            assert!(found.contains(&expected.to_owned()), "{expected}: {found:?}");
        }
        // The tools are unknown, so no pattern is reported as matching none.
        let callers = "callers: [{name: a, key: \"${env:KEY}\", admin: true, allow: [anything_*]}]\n";
        let found = rules(&format!("{callers}{}", module(", tools: {f: {effect: read, cache: {ttl: 5m}}}")));
        assert_eq!(found, ["short-key callers.0.key", "unreachable-tool python_modules.m.tools.f"]);
    }
}
