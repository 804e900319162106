//! One entry of `typescript_modules:`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::decode::Entry;
use super::inputs::Inputs;
use super::modules::{check_functions, check_object};
use super::sections::PolicyEntry;
use super::source::SourceRules;
use super::source_tools::{Source, SourceEntry, absolute_path};
use crate::call::units::HumanDuration;
use crate::call::{EnvVar, JsonObject, Kind};
use crate::kinds::SandboxSetting;
use crate::sources::workers::{Language, ModulePath, ModuleSettings, WorkerRange};
use crate::sources::{SourceSettings, ToolFilter};

/// The endings of files that a runtime loads.
const EXTENSIONS: [&str; 8] = ["ts", "mts", "cts", "tsx", "js", "mjs", "cjs", "jsx"];
/// The program that runs a module without `runtime`.
const DEFAULT_RUNTIME: &str = "node";

/// One entry of `typescript_modules:`: a TypeScript or JavaScript file, or a package, with tools.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TypescriptEntry {
    /// A file, relative to the manifest, or a package to import. A file ends in `.ts`, `.mts`, `.js`
    /// or `.mjs`, or starts with `./` or `/`.
    #[schemars(extend("examples" = ["./shop.ts"]))]
    module: Option<String>,
    /// The program that runs the module: `node` (18.20, or 20.9 or newer), `deno`, `bun`, or the path of one.
    #[schemars(extend("examples" = ["./node_modules/.bin/node"]), extend("default" = "node"))]
    runtime: Option<String>,
    /// A `package.json`. The service installs its packages once, with those of the lock file beside
    /// it.
    #[schemars(extend("examples" = ["./package.json"]))]
    requirements: Option<String>,
    /// Worker processes. Each takes many calls at once.
    #[schemars(extend("examples" = [2]), extend("default" = 1))]
    workers: Option<usize>,
    /// Text before the name of every tool.
    #[schemars(extend("examples" = ["travel_"]))]
    prefix: String,
    /// Names of the exports that become tools. Default: the exported tools of a framework, or every
    /// exported function if there are none.
    #[schemars(extend("examples" = [["findFlights"]]))]
    functions: Option<Vec<String>>,
    /// An exported class or function that makes an object. The methods are the tools, and each
    /// worker has one instance.
    #[schemars(extend("examples" = ["Database"]))]
    object: Option<String>,
    /// Arguments for `object`.
    #[schemars(extend("examples" = [serde_json::json!({"url": "${env:DB_URL}"})]))]
    init: Option<JsonObject>,
    /// Environment variables of the workers. They inherit no other.
    #[schemars(extend("examples" = [serde_json::json!({"TZ": "UTC"})]))]
    environment: BTreeMap<String, String>,
    /// What the workers may do. `service`: everything, except to reach the service. `true` or a map:
    /// only what is named. `none`: everything.
    #[schemars(extend("examples" = [serde_json::json!({"network": ["api.example.com"]})]), extend("default" = "service"))]
    sandbox: Option<SandboxSetting>,
    /// The module's tools that are mounted; `*` stands for any characters. Default: all.
    #[schemars(extend("examples" = [["get_*"]]))]
    include: Option<Vec<String>>,
    /// The module's tools that are left out. Takes precedence over `include`.
    #[schemars(extend("examples" = [["delete_*"]]))]
    exclude: Option<Vec<String>>,
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

impl SourceEntry for TypescriptEntry {
    const KIND: Kind = Kind::Typescript;
    const RUNTIME_KEYS: &[&str] = &[
        "module",
        "runtime",
        "requirements",
        "object",
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
            source.error(
                "workers",
                "at least one worker is needed; leave the key out for one",
            );
        }
        check_functions(self.functions.as_deref(), source);
        check_object(self.object.as_deref(), self.init.is_some(), source);
        if self.include.as_ref().is_some_and(Vec::is_empty) {
            let message =
                "names no tool, so the module would have no tools; leave the key out for all";
            source.error("include", message);
        }
        let requirements = self.requirements;
        let requirements = requirements.map(|file| source.existing_file("requirements", &file));
        let start_timeout = source.start_timeout(self.start_timeout);
        let program = read_runtime(self.runtime, source);
        let module = read_module(self.module, source);
        let settings = ModuleSettings {
            language: Language::Typescript,
            name: name.to_owned(),
            module: module?,
            program: program?,
            requirements: match requirements {
                None => None,
                Some(file) => Some(file?),
            },
            workers: WorkerRange::exactly(self.workers.unwrap_or(1)),
            functions: self.functions,
            include: self.include.unwrap_or_default(),
            exclude: self.exclude.unwrap_or_default(),
            object: self.object,
            share: false,
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

    fn check(settings: &SourceSettings, rules: &SourceRules, _: &Inputs<'_>, entry: Entry<'_>) {
        let SourceSettings::Module(settings) = settings else {
            return;
        };
        let filter = ToolFilter::new(&settings.include, &settings.exclude);
        for own in rules.tools.keys().filter(|own| !filter.allows(own)) {
            let message = "include and exclude leave this tool out, so this policy has no effect";
            entry.error(&["tools", own], message);
        }
    }
}

fn read_runtime(runtime: Option<String>, source: &Source<'_>) -> Option<PathBuf> {
    match runtime {
        None => Some(DEFAULT_RUNTIME.into()),
        Some(program) if program.contains('/') => source.existing_file("runtime", &program),
        Some(program) if program.trim().is_empty() => {
            source.error("runtime", "node, deno, bun or a path is expected here");
            None
        }
        Some(program) => Some(program.into()),
    }
}

fn read_module(module: Option<String>, source: &Source<'_>) -> Option<ModulePath> {
    match module {
        None => {
            let message = "module is missing: a file, e.g. ./tools/shop.ts, or a package";
            source.entry.own_error(message);
            None
        }
        Some(file) if is_file(&file) => source.existing_file("module", &file).map(ModulePath::File),
        Some(package) if !package.is_empty() && !package.contains(char::is_whitespace) => {
            Some(ModulePath::Name(package))
        }
        Some(_) => {
            let message = "neither a file (it would end in .ts, .mts, .js or .mjs, or start with ./) nor the name of a \
                           package, e.g. @acme/tools";
            source.error("module", message);
            None
        }
    }
}

/// Whether `module:` names a file.
fn is_file(module: &str) -> bool {
    let extension = Path::new(module).extension().and_then(|text| text.to_str());
    module.starts_with(['.', '/']) || extension.is_some_and(|text| EXTENSIONS.contains(&text))
}

#[cfg(test)]
mod tests {
    use super::super::source_tools::DEFAULT_START_TIMEOUT;
    use super::*;
    use crate::manifest::testing::load_text;

    fn settings(entry: &str) -> ModuleSettings {
        let manifest = load_text(&format!("typescript_modules:\n  s: {entry}\n"));
        let manifest = manifest.unwrap_or_else(|errors| panic!("{errors:?}"));
        let source = manifest.sources.into_iter().next().unwrap();
        match source.settings {
            SourceSettings::Module(settings) => *settings,
            _ => panic!("no module"),
        }
    }

    #[test]
    fn all_keys_are_read() {
        let entry = "{module: ./tools/shop.ts, runtime: ./bin/node, requirements: package.json, workers: 2, functions: [f], \
                     object: C, init: {a: 1}, environment: {K: '${env:KEY}'}, include: [f*], exclude: [g]}";
        let expected = ModuleSettings {
            language: Language::Typescript,
            name: "s".into(),
            module: ModulePath::File("/etc/crib/tools/shop.ts".into()),
            program: "/etc/crib/bin/node".into(),
            requirements: Some("/etc/crib/package.json".into()),
            workers: WorkerRange::exactly(2),
            functions: Some(vec!["f".into()]),
            include: vec!["f*".into()],
            exclude: vec!["g".into()],
            object: Some("C".into()),
            share: false,
            init: JsonObject::from_iter([("a".to_owned(), json!(1))]),
            environment: [("K".to_owned(), "value-of-key".to_owned())].into(),
            sandbox: SandboxSetting::Service,
            workdir: "/etc/crib".into(),
            package_dir: PathBuf::new(),
            start_timeout: DEFAULT_START_TIMEOUT,
        };
        assert_eq!(settings(entry), expected);
        let plain = settings("{module: tools/shop.ts}");
        assert_eq!(
            (plain.program, plain.workers),
            ("node".into(), WorkerRange::exactly(1))
        );
        assert_eq!(
            settings("{module: '@acme/tools'}").module,
            ModulePath::Name("@acme/tools".into())
        );
    }

    #[test]
    fn misfits_are_reported() {
        for (entry, expected) in [
            ("{workers: 2}", "typescript_modules.s: module is missing"),
            (
                "{module: ./tools/gone.ts}",
                "typescript_modules.s.module: there is no file",
            ),
            (
                "{module: my tools}",
                "typescript_modules.s.module: neither a file",
            ),
            (
                "{module: tools/shop.ts, workers: 0}",
                "s.workers: at least one",
            ),
            (
                "{module: tools/shop.ts, runtime: ./nope/node}",
                "s.runtime: there is no file",
            ),
            (
                "{module: tools/shop.ts, runtime: ' '}",
                "s.runtime: node, deno, bun or a path",
            ),
            (
                "{module: tools/shop.ts, requirements: p.json}",
                "s.requirements: there is no file",
            ),
            (
                "{module: tools/shop.ts, functions: []}",
                "s.functions: names no function",
            ),
            (
                "{module: tools/shop.ts, include: []}",
                "s.include: names no tool",
            ),
            (
                "{module: tools/shop.ts, init: {}}",
                "s.init: these are arguments for a class",
            ),
            (
                "{module: tools/shop.ts, interpreter: x}",
                "s.interpreter: unknown key",
            ),
            (
                "{module: tools/shop.ts, exclude: [f], tools: {f: {effect: read}}}",
                "s.tools.f: include and exclude leave this tool out",
            ),
        ] {
            let errors = load_text(&format!("typescript_modules:\n  s: {entry}\n")).err();
            let errors = errors.unwrap_or_default().join("\n");
            assert!(errors.contains(expected), "{entry}: {errors}");
        }
        let tool = "tools: {f: {kind: typescript}}\n";
        let errors = load_text(tool).err().unwrap_or_default().join("\n");
        assert!(
            errors.contains("the section `typescript_modules:`"),
            "{errors}"
        );
    }
}
