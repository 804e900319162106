//! One entry of `python_modules:`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::decode::{Findings, fields, join};
use super::load::WrittenTool;
use super::node::{Key, Node};
use super::references::References;
use super::sections::{DefinitionEntry, PolicyEntry};
use super::source::{DeclaredSource, SourceRules, ToolRules};
use super::tool::ToolReader;
use crate::call::json::{canonical, digest};
use crate::call::units::Time;
use crate::call::{JsonObject, Kind, NameError, Policy, ToolName};
use crate::tools::python::{Interpreter, ModulePath, ModuleSettings};
use crate::tools::{SourceSettings, StandIn, Tool};

/// For a worker to have loaded its module, unless it is said: imports of large libraries take many seconds.
const START_TIME: Duration = Duration::from_secs(60);
/// Of the keys of a tool, those that a module's tool has beside its policy: the rest comes with the module.
const OF_TOOLS: [&str; 5] = ["description", "aliases", "tags", "annotations", "result_as_answer"];
/// Keys that say what runs.
const RUNS: [&str; 6] = ["module", "interpreter", "requirements", "object", "init", "environment"];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModuleEntry {
    module: Option<String>,
    interpreter: Option<String>,
    requirements: Option<String>,
    workers: Option<usize>,
    prefix: String,
    functions: Option<Vec<String>>,
    object: Option<String>,
    init: Option<JsonObject>,
    environment: BTreeMap<String, String>,
    start_timeout: Option<Time>,
    /// Read tool by tool.
    tools: Option<serde_json::Value>,
}

impl ToolReader<'_> {
    /// Reads one entry, and what it says of tools; what is wrong with it is among the findings.
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
        let mut node = written.filtered(|key| known.contains(&key) && key != "tools");
        self.resolve(&mut node, &under, false);
        let said: ModuleEntry = self.findings.decode_keys(&node, &under).unwrap_or_default();

        let mut rules = SourceRules { prefix: said.prefix.clone(), ..SourceRules::default() };
        if ToolName::parse(&format!("{}x", said.prefix)).is_err() {
            self.findings.error(&node, &["prefix".into()], &under, NameError.to_string());
        }
        self.govern(Kind::Python, &mut rules.policy, &PolicyEntry::default(), &node, &under);
        let tools = self.tools_of(written, &under, &mut rules);
        rules.asked = said.functions.clone().unwrap_or_default();
        let settings = self.module_settings(name, said, &node, &under);
        if self.has_errors_since(before) {
            return None;
        }
        let runs = |node: &Node| node.filtered(|key| RUNS.contains(&key)).to_json();
        let declared = DeclaredSource {
            settings: SourceSettings::Python(settings?.into()),
            rules,
            written: runs(written),
            generation: digest([canonical(&runs(&node)).as_slice()]),
        };
        Some((declared, tools))
    }

    fn resolve(&mut self, node: &mut Node, under: &str, tool: bool) {
        let secrets = std::mem::take(self.secrets);
        let mut references = References { source: self.source, base: self.base, defaults: HashMap::new(), secrets };
        references.resolve(node, under, self.findings, tool);
        *self.secrets = references.secrets;
    }

    fn module_settings(&mut self, name: &str, said: ModuleEntry, node: &Node, under: &str) -> Option<ModuleSettings> {
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
            init: init.unwrap_or_default(),
            environment: said.environment,
            workdir: absolute(self.base),
            // Where the service may write is known to who starts it.
            venvs: PathBuf::new(),
            start_timeout: said.start_timeout.map_or(START_TIME, |time| time.0),
        })
    }

    /// `tools:` below a module.
    fn tools_of(&mut self, module: &Node, under: &str, rules: &mut SourceRules) -> Vec<WrittenTool> {
        let Some(node) = module.get("tools") else { return Vec::new() };
        let under = join(under, &["tools".into()]);
        let Some(entries) = node.entries() else {
            self.findings.error(node, &[], &under, "a map of the module's tools is expected here");
            return Vec::new();
        };
        let mut written = Vec::new();
        for (key, entry) in entries {
            let under = join(&under, std::slice::from_ref(&key.text));
            let name = format!("{}{}", rules.prefix, key.text);
            let tool = self.rules_of(&name, entry, &under);
            if let Some((tool_rules, _)) = &tool {
                rules.tools.insert(key.text.clone(), tool_rules.clone());
            }
            written.push(WrittenTool {
                key: Key { text: name, place: key.place.clone() },
                under,
                entry: entry.clone(),
                tool: tool.map(|(_, tool)| tool),
                base: self.base.to_owned(),
            });
        }
        written
    }

    /// What is said of one tool, and a tool of that kind for those who look at policies.
    fn rules_of(&mut self, name: &str, written: &Node, under: &str) -> Option<(ToolRules, Tool)> {
        if ToolName::parse(name).is_err() {
            self.findings.error(written, &[], under, NameError.to_string());
            return None;
        }
        if written.entries().is_none() {
            self.findings.error(written, &[], under, "a map is expected here: effect, timeout, limits, cache …");
            return None;
        }
        let before = self.findings.0.len();
        let known: Vec<&str> = [fields::<PolicyEntry>(), &OF_TOOLS].concat();
        self.findings.unknown_keys(written, under, &known);
        let mut node = written.filtered(|key| known.contains(&key));
        self.resolve(&mut node, under, true);
        let said: DefinitionEntry = self.part(&node, under, &OF_TOOLS).unwrap_or_default();
        let policy: PolicyEntry = self.part(&node, under, fields::<PolicyEntry>()).unwrap_or_default();
        let (description, result_as_answer) = (said.description.clone(), said.result_as_answer);
        // Its description comes with the module unless there is one here.
        let mut tool = Tool::new(name, "…");
        tool.kind = Kind::Python;
        tool.policy = Policy::default();
        let mut tool = tool.with_runner(Arc::new(StandIn::new(|| ("it is not listed yet".into(), None))));
        self.define(&mut tool, said, &node, under, None);
        self.govern(Kind::Python, &mut tool.policy, &policy, &node, under);
        let rules = ToolRules {
            policy: tool.policy.clone(),
            description,
            aliases: tool.definition.aliases.clone(),
            tags: tool.definition.tags.clone(),
            annotations: tool.definition.annotations.clone(),
            result_as_answer,
        };
        (!self.has_errors_since(before)).then_some((rules, tool))
    }
}

/// Says what is wrong at the keys of one entry.
struct Checks<'a> {
    findings: &'a mut Findings,
    node: &'a Node,
    under: &'a str,
}

impl Checks<'_> {
    fn error(&mut self, key: &str, message: &str) {
        self.findings.error(self.node, &[key.to_owned()], self.under, message);
    }

    /// The file that a key names, which must be there.
    fn file(&mut self, key: &str, base: &Path, file: &str, exists: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
        let path = absolute(&base.join(file));
        if exists(&path) {
            return Some(path);
        }
        self.error(key, &format!("there is no file {}", base.join(file).display()));
        None
    }
}

/// Whether `module:` names a file.
fn is_file(module: &str) -> bool {
    module.contains('/') || Path::new(module).extension().is_some_and(|extension| extension == "py")
}

/// Whether Python could import it by this name.
fn is_importable(module: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric())
    };
    module.split('.').all(part)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
