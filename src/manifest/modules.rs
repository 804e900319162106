//! One entry of `python_modules:`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::sections::PolicyEntry;
use super::source::SourceRules;
use super::source_tools::{Source, SourceEntry, absolute_path};
use crate::call::units::HumanDuration;
use crate::call::{EnvVar, JsonObject, Kind};
use crate::kinds::SandboxSetting;
use crate::sources::SourceSettings;
use crate::sources::workers::{Language, ModulePath, ModuleSettings, WorkerRange};

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
    /// Worker processes for functions that are not `async`. Default: one, and more while calls
    /// wait, up to the number of processors and at least 4; with `object` always one.
    #[schemars(extend("examples" = [2]))]
    workers: Option<usize>,
    /// Text before the name of every tool.
    #[schemars(extend("examples" = ["travel_"]))]
    prefix: String,
    /// Names of the functions that become tools. Default: every decorated tool. Plain typed
    /// functions need this list.
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
    /// What the workers may do. `service`: everything, except to reach the service. `true` or a map:
    /// only what is named. `none`: everything.
    #[schemars(extend("examples" = [serde_json::json!({"network": ["api.example.com"]})]), extend("default" = "service"))]
    sandbox: Option<SandboxSetting>,
    /// Time for a worker to load the module.
    #[schemars(extend("examples" = ["60s"]), extend("default" = "60s"))]
    start_timeout: Option<HumanDuration>,
    /// Policy of all tools of the module.
    // Read separately.
    #[schemars(with = "PolicyEntry")]
    defaults: Option<serde_json::Value>,
    /// Policy of single tools, by the module's own name of a tool. A name with `*` is a pattern for
    /// several tools.
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

impl SourceEntry for ModuleEntry {
    const KIND: Kind = Kind::Python;
    const RUNTIME_KEYS: &[&str] = &[
        "module",
        "interpreter",
        "requirements",
        "object",
        "share",
        "init",
        "environment",
        "sandbox",
    ];
    const NAME_RULE: &str =
        "a module's name here has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..";
    const SOME_KEYS: &str = "module, workers, functions, tools …";

    fn from_text(text: &str) -> Value {
        json!({"module": text})
    }

    fn rules(&self, _: &str) -> SourceRules {
        SourceRules {
            prefix: self.prefix.clone(),
            expected_tools: self.functions.clone().unwrap_or_default(),
            ..SourceRules::default()
        }
    }

    fn settings(self, name: &str, source: &Source<'_>) -> Option<SourceSettings> {
        if self.workers == Some(0) {
            let message =
                "at least one worker is needed; leave the key out to start them on demand";
            source.error("workers", message);
        }
        check_functions(self.functions.as_deref(), source);
        check_object(self.object.as_deref(), self.init.is_some(), source);
        if self.share && self.object.is_none() {
            let message = "only an object can be shared, and `object` is missing; add `object`, or leave share out";
            source.error("share", message);
        }
        if self.share && self.workers.is_some_and(|workers| workers > 1) {
            let message =
                "`share: true` keeps one object in one process: leave out workers or share";
            source.error("workers", message);
        }
        let start_timeout = source.start_timeout(self.start_timeout);
        let interpreter = read_interpreter(self.interpreter, self.requirements, source);
        let module = read_module(self.module, source);
        let (program, requirements) = interpreter?;
        let settings = ModuleSettings {
            language: Language::Python,
            name: name.to_owned(),
            module: module?,
            program,
            requirements,
            workers: match self.workers {
                Some(workers) => WorkerRange::exactly(workers),
                // An object may hold state that all calls share.
                None if self.object.is_some() => WorkerRange::exactly(1),
                None => WorkerRange::on_demand(),
            },
            functions: self.functions,
            include: Vec::new(),
            exclude: Vec::new(),
            object: self.object,
            share: self.share,
            init: self.init.unwrap_or_default(),
            environment: source.declared.process_environment(self.environment),
            sandbox: source
                .inputs
                .sandboxes
                .setting(self.sandbox, source.inputs.base),
            workdir: absolute_path(source.inputs.base),
            // The program that starts the service chooses where it may write.
            package_dir: PathBuf::new(),
            start_timeout,
        };
        Some(SourceSettings::Module(settings.into()))
    }
}

/// Reports `functions:` of a module without an entry.
pub(super) fn check_functions(functions: Option<&[String]>, source: &Source<'_>) {
    if functions.is_some_and(<[String]>::is_empty) {
        let message = "names no function, so the module would have no tools; leave the key out for all tools of the \
                       module";
        source.error("functions", message);
    }
}

/// Reports `init:` and `object:` of a module that do not fit together.
pub(super) fn check_object(object: Option<&str>, has_init: bool, source: &Source<'_>) {
    if has_init && object.is_none() {
        let message = "these are arguments for a class, and `object` is missing; add `object`, or leave init out";
        source.error("init", message);
    }
    if object.is_some_and(|object| object.trim().is_empty()) {
        source.error(
            "object",
            "the name of a class in the module is expected here",
        );
    }
}

fn read_interpreter(
    program: Option<String>,
    requirements: Option<String>,
    source: &Source<'_>,
) -> Option<(PathBuf, Option<PathBuf>)> {
    let default = || PathBuf::from("python3");
    match (program, requirements) {
        (Some(_), Some(_)) => {
            let message = "interpreter and requirements exclude each other: keep one";
            source.error("requirements", message);
            None
        }
        (None, Some(file)) => {
            let file = source.existing_file("requirements", &file);
            file.map(|file| (default(), Some(file)))
        }
        (Some(program), None) if program.contains('/') => {
            let program = source.existing_file("interpreter", &program);
            program.map(|program| (program, None))
        }
        (Some(program), None) if program.trim().is_empty() => {
            let message = "a program is expected here, e.g. python3 or ./venv/bin/python";
            source.error("interpreter", message);
            None
        }
        (program, None) => Some((program.map_or_else(default, PathBuf::from), None)),
    }
}

fn read_module(module: Option<String>, source: &Source<'_>) -> Option<ModulePath> {
    match module {
        None => {
            let message =
                "module is missing: a file, e.g. ./tools/weather.py, or an importable module";
            source.entry.own_error(message);
            None
        }
        Some(file) if is_file(&file) => source.existing_file("module", &file).map(ModulePath::File),
        Some(module) if is_importable(&module) => Some(ModulePath::Name(module)),
        Some(_) => {
            let message = "neither a file (it would end in .py or contain a /) nor a module's name, e.g. pkg.module";
            source.error("module", message);
            None
        }
    }
}

/// Whether `module:` names a file.
fn is_file(module: &str) -> bool {
    module.contains('/')
        || Path::new(module)
            .extension()
            .is_some_and(|extension| extension == "py")
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
    use std::time::Duration;

    use super::super::source::DeclaredSource;
    use super::super::source_tools::DEFAULT_START_TIMEOUT;
    use super::*;
    use crate::call::{Effect, Per};
    use crate::manifest::testing::{check_rules, load_text};

    fn module(entry: &str) -> Result<DeclaredSource, Vec<String>> {
        load_text(&format!("python_modules:\n  m: {entry}\n"))
            .map(|mut manifest| manifest.sources.remove(0))
    }

    fn settings(entry: &str) -> ModuleSettings {
        match module(entry)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .settings
        {
            SourceSettings::Module(settings) => *settings,
            SourceSettings::Mcp(_)
            | SourceSettings::Openapi(_)
            | SourceSettings::Program { .. } => {
                panic!("not a module")
            }
        }
    }

    #[test]
    fn module_entry_reads_every_key() {
        let entry = "{module: ./tools/m.py, interpreter: ./venv/bin/python, workers: 2, prefix: w_, functions: [f], object: C, \
                     init: {url: \"${env:KEY}\", n: 1}, environment: {K: \"${env:KEY}\"}, start_timeout: 5s, \
                     tools: {f: {effect: read, timeout: 9s, cache: {ttl: 5m}, limits: [{calls: 1, per: day}], aliases: [g], \
                     tags: [t], description: Does it., annotations: {title: T}, result_as_answer: true, capture: digest}}}";
        let declared = module(entry).unwrap();
        let SourceSettings::Module(module) = &declared.settings else {
            panic!("not a module")
        };
        assert_eq!(
            **module,
            ModuleSettings {
                name: "m".into(),
                module: ModulePath::File("/etc/crib/tools/m.py".into()),
                language: Language::Python,
                program: "/etc/crib/venv/bin/python".into(),
                requirements: None,
                workers: WorkerRange::exactly(2),
                functions: Some(vec!["f".into()]),
                include: Vec::new(),
                exclude: Vec::new(),
                object: Some("C".into()),
                share: false,
                init: serde_json::from_str(r#"{"url": "value-of-key", "n": 1}"#).unwrap(),
                environment: [("K".to_owned(), "value-of-key".to_owned())].into(),
                sandbox: SandboxSetting::Service,
                workdir: "/etc/crib".into(),
                package_dir: PathBuf::new(),
                start_timeout: Duration::from_secs(5),
            }
        );
        let rules = &declared.rules.tools["f"];
        let policy = declared.rules.policy_for("f", Kind::Python, None);
        assert_eq!(
            (policy.effect, policy.timeout),
            (Effect::Read, Duration::from_secs(9))
        );
        assert_eq!(
            (policy.limits[0].per, policy.cache.is_some()),
            (Per::Day, true)
        );
        assert_eq!(
            (rules.description.as_deref(), rules.result_as_answer),
            (Some("Does it."), Some(true))
        );
        assert_eq!(
            (
                declared.rules.prefix.as_str(),
                &declared.rules.expected_tools[..]
            ),
            ("w_", &["f".to_owned()][..])
        );
        assert!(
            !declared
                .written_settings
                .to_string()
                .contains("value-of-key"),
            "{}",
            declared.written_settings
        );
        let read = load_text(&format!("python_modules:\n  m: {entry}\n")).unwrap();
        assert_eq!(read.secrets, ["value-of-key"]);
    }

    #[test]
    fn module_settings_have_defaults() {
        let plain = settings("{module: strands_tools.calculator}");
        assert_eq!(
            plain.module,
            ModulePath::Name("strands_tools.calculator".into())
        );
        assert_eq!(
            (plain.program, plain.workers),
            ("python3".into(), WorkerRange::on_demand())
        );
        let object = settings("{module: tools/m.py, object: C}");
        assert_eq!(
            object.workers,
            WorkerRange::exactly(1),
            "its state is in one process"
        );
        assert_eq!(
            (plain.start_timeout, plain.functions),
            (DEFAULT_START_TIMEOUT, None)
        );
        let required = settings("{module: tools/m.py, requirements: requirements.txt}");
        assert_eq!(
            required.requirements,
            Some("/etc/crib/requirements.txt".into())
        );
    }

    #[test]
    fn defaults_apply_to_unlisted_tools() {
        let text = "defaults: {timeout: 7s, effect: read}\npython_modules: {m: {module: tools/m.py, tools: {f: {effect: write}}}}\n";
        let declared = load_text(text).unwrap().sources.remove(0);
        let policy = |name: &str| declared.rules.policy_for(name, Kind::Python, None);
        assert_eq!(
            (policy("other").timeout.as_secs(), policy("other").effect),
            (7, Effect::Read)
        );
        assert_eq!(
            (policy("f").timeout.as_secs(), policy("f").effect),
            (7, Effect::Write)
        );
    }

    #[test]
    fn patterns_and_defaults_complete_entries() {
        let text = "defaults: {effect: idempotent, timeout: 1s, strict: true}\npython_modules:\n  m:\n    module: tools/m.py\n    \
                    defaults: {timeout: 2s, concurrency: {max: 3}}\n    tools:\n      \"list_*\": {effect: read, timeout: 3s}\n      \
                    \"*_users\": {timeout: 4s, concurrency: {queue: 5}}\n      list_users: {effect: write}\n";
        let declared = load_text(text).unwrap().sources.remove(0);
        let policy = |name: &str| {
            let policy = declared.rules.policy_for(name, Kind::Python, None);
            (
                policy.effect,
                policy.timeout.as_secs(),
                policy.concurrency.max,
                policy.concurrency.queue,
                policy.strict,
            )
        };
        assert_eq!(policy("get"), (Effect::Idempotent, 2, 3, 64, true));
        assert_eq!(policy("list_orders"), (Effect::Read, 3, 3, 64, true));
        // Each key comes from the exact name, then from the last pattern that has it.
        assert_eq!(policy("list_new_users"), (Effect::Read, 4, 3, 5, true));
        assert_eq!(policy("list_users"), (Effect::Write, 4, 3, 5, true));
        let listed = [("list_orders", &json!({}))];
        let idle = declared.rules.policies.idle_entries(&listed, &[]);
        assert_eq!(idle.len(), 1, "{idle:?}");
        assert_eq!(idle[0].0, ["tools", "*_users"]);
        assert_eq!(
            declared.rules.known_tools().collect::<Vec<_>>(),
            ["list_users"]
        );
        let errors = load_text(
            "python_modules: {m: {module: tools/m.py, tools: {\"x_*\": {efect: read}}}}\n",
        )
        .err()
        .unwrap();
        assert!(
            errors[0]
                .contains("python_modules.m.tools.x_*.efect: unknown key, did you mean effect?"),
            "{errors:?}"
        );
        let errors =
            load_text("python_modules: {m: {module: tools/m.py, defaults: {timeout: 0s}}}\n")
                .err()
                .unwrap();
        assert!(
            errors[0].contains("python_modules.m.defaults.timeout: a timeout of zero"),
            "{errors:?}"
        );
    }

    #[test]
    fn references_in_shared_policies_are_replaced() {
        let text = "python_modules:\n  m:\n    module: tools/m.py\n    defaults: {timeout: '${env:TIME}'}\n    \
                    tools: {'list_*': {deadline: '${env:TIME}'}}\n";
        let declared = load_text(text).unwrap().sources.remove(0);
        let policy = declared.rules.policy_for("list_users", Kind::Python, None);
        assert_eq!(
            (policy.timeout, policy.deadline),
            (Duration::from_secs(9), Some(Duration::from_secs(9)))
        );
        for (entry, expected) in [
            (
                "defaults: {timeout: '${env:NOT_THERE}'}",
                "python_modules.m.defaults.timeout: environment variable NOT_THERE",
            ),
            (
                "defaults: {cache: {ttl: 5m, when: '${env:KEY}'}}",
                "python_modules.m.defaults.cache.when: callers can see this",
            ),
            (
                "tools: {'*': {cache: {ttl: 5m, when: '${env:KEY}'}}}",
                "python_modules.m.tools.*.cache.when: callers can see this",
            ),
            (
                "tools: {f: {cache: {ttl: 5m, when: '${env:KEY}'}}}",
                "python_modules.m.tools.f.cache.when: callers can see this",
            ),
        ] {
            let errors = module(&format!("{{module: tools/m.py, {entry}}}"))
                .err()
                .unwrap_or_default();
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{entry}: {errors:?}"
            );
        }
    }

    #[test]
    fn invalid_modules_are_located_errors() {
        for (entry, expected) in [
            ("{workers: 2}", "2:6: python_modules.m: module is missing"),
            (
                "{module: tools/n.py}",
                "2:7: python_modules.m.module: there is no file /etc/crib/tools/n.py",
            ),
            (
                "{module: ./tools}",
                "python_modules.m.module: there is no file",
            ),
            (
                "{module: \"not a module\"}",
                "python_modules.m.module: neither a file",
            ),
            (
                "{module: tools/m.py, interpreter: ./nope/python}",
                "python_modules.m.interpreter: there is no file",
            ),
            (
                "{module: tools/m.py, requirements: nope.txt}",
                "python_modules.m.requirements: there is no file",
            ),
            (
                "{module: tools/m.py, requirements: requirements.txt, interpreter: python3}",
                "2:27: python_modules.m.requirements: interpreter and requirements",
            ),
            (
                "{module: tools/m.py, workers: 0}",
                "python_modules.m.workers: at least one",
            ),
            (
                "{module: tools/m.py, workers: -1}",
                "python_modules.m.workers: 0 or more is expected here",
            ),
            (
                "{module: tools/m.py, functions: []}",
                "python_modules.m.functions: names no function",
            ),
            (
                "{module: tools/m.py, init: {a: 1}}",
                "python_modules.m.init: these are arguments for a class",
            ),
            (
                "{module: tools/m.py, share: true}",
                "python_modules.m.share: only an object can be shared",
            ),
            (
                "{module: tools/m.py, object: C, share: true, workers: 2}",
                "python_modules.m.workers: `share: true` keeps one",
            ),
            (
                "{module: tools/m.py, objekt: C}",
                "python_modules.m.objekt: unknown key, did you mean object?",
            ),
            (
                "{module: tools/m.py, start_timeout: 0s}",
                "python_modules.m.start_timeout: the time must be above zero",
            ),
            (
                "{module: tools/m.py, start_timeout: soon}",
                "python_modules.m.start_timeout",
            ),
            (
                "{module: tools/m.py, prefix: 'a b'}",
                "python_modules.m.prefix: a tool name has",
            ),
            (
                "{module: tools/m.py, environment: {K: \"${env:NOT_THERE}\"}}",
                "python_modules.m.environment.K: environment variable NOT_THERE",
            ),
            (
                "{module: tools/m.py, tools: [f]}",
                "python_modules.m.tools: a map",
            ),
            (
                "{module: tools/m.py, tools: {f: read}}",
                "python_modules.m.tools.f: a map",
            ),
            (
                "{module: tools/m.py, tools: {f: {efect: read}}}",
                "python_modules.m.tools.f.efect: unknown key, did you mean effect?",
            ),
            (
                "{module: tools/m.py, tools: {f: {input_schema: {}}}}",
                "python_modules.m.tools.f.input_schema: unknown key",
            ),
            (
                "{module: tools/m.py, tools: {f: {timeout: soon}}}",
                "python_modules.m.tools.f.timeout",
            ),
            (
                "{module: tools/m.py, tools: {f: {description: \"${env:KEY}\"}}}",
                "python_modules.m.tools.f.description: callers can see this",
            ),
            (
                "{module: tools/m.py, tools: {'f g': {}}}",
                "python_modules.m.tools.f g: a tool name has",
            ),
            (
                "{module: tools/m.py, tools: {f: {aliases: [g]}, g: {}}}",
                "python_modules.m.tools.g: the name is taken",
            ),
            ("tools/m.py", "python_modules.m: a map is expected"),
        ] {
            let errors = module(entry).err().unwrap_or_default();
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{entry}: {errors:?}"
            );
        }
        let errors = load_text("python_modules: {a/b: {module: tools/m.py}}\n")
            .err()
            .unwrap();
        assert!(errors[0].contains("a module's name"), "{errors:?}");
        let errors = load_text(
            "tools: {f: {kind: native, use: calculator}}\npython_modules: {m: {module: tools/m.py, tools: {f: {}}}}\n",
        );
        assert!(errors.err().unwrap()[0].ends_with("the name is taken: 1:9"));
        assert!(load_text("python_modules: [m]\n").err().unwrap()[0].contains("a map of modules"));
    }

    #[test]
    fn lints_check_module_entries() {
        let module = |keys: &str| format!("python_modules:\n  m: {{module: tools/m.py{keys}}}\n");
        assert_eq!(check_rules(&module("")), [""; 0]);
        assert_eq!(
            check_rules(&module(
                ", object: C, init: {password: correct-horse}, environment: {API_TOKEN: tok-123456789}"
            )),
            [
                "literal-secret python_modules.m.init.password",
                "literal-secret python_modules.m.environment.API_TOKEN"
            ]
        );
        let tools = module(", prefix: w_, tools: {g: {retry: {attempts: 3}}}");
        assert_eq!(
            check_rules(&tools),
            ["ineffective python_modules.m.tools.g.retry"]
        );
        // The tools are unknown, so no pattern is reported as matching none.
        let callers =
            "callers: [{name: a, key: \"${env:KEY}\", admin: true, allow: [anything_*]}]\n";
        let found = check_rules(&format!(
            "{callers}{}",
            module(", tools: {f: {effect: read, cache: {ttl: 5m}}}")
        ));
        assert_eq!(
            found,
            [
                "short-key callers.0.key",
                "unreachable-tool python_modules.m.tools.f"
            ]
        );
    }
}
