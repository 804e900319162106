//! Loads a file, and the files it includes, as a [`Manifest`].

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::approvals_section::read_approvals;
use super::cache_section::read_redis;
use super::callers;
use super::calls_section::check_calls;
use super::decode::{Findings, field_names, join_path};
use super::file::{parent_folder, parse_file};
use super::finding::{Finding, Severity};
use super::ledger_section::check_ledger;
use super::lock;
use super::misplaced_keys::correct_indentation;
use super::name_conflicts;
use super::node::Node;
use super::parsed::{MCP_SERVERS, OPENAPI, ParsedManifest, ParsedSource, ParsedTool};
use super::policy;
use super::references::{ManifestInput, References};
use super::rule::Rule;
use super::sections::{Approvals, Cache, Compat, Ledger, PolicyEntry, Server, Telemetry};
use super::self_reference::self_references;
use super::server_section::read_server;
use super::taken_names::TakenNames;
use super::telemetry_section::read_telemetry;
use super::tool::ToolReader;
use super::tool_lists;
use super::{DEFAULT_LEDGER, DeclaredSource, Defaults, Manifest};
use crate::access::callers::CallerSettings;
use crate::cache::RedisAddress;
use crate::call::{CallSettings, DigestKey, Kind, Origin};
use crate::kinds::features::missing_feature;
use crate::kinds::{Databases, HttpClients, OwnPorts, TokenSources, Tool};
use crate::ledger;
use crate::secrets::Redactor;

const MANIFEST_SECTIONS: [&str; 14] = [
    "server",
    "ledger",
    "cache",
    "approvals",
    "telemetry",
    "compat",
    "calls",
    "callers",
    "include",
    "defaults",
    "tools",
    "python_modules",
    "mcp_servers",
    "openapi",
];
/// The shortest value that is removed from messages. One or two letters would be found in every
/// word.
const SHORTEST_SECRET: usize = 3;
const INCLUDABLE_SECTIONS: [&str; 4] = ["tools", "python_modules", "mcp_servers", "openapi"];

/// The program that reads a manifest.
#[derive(Default)]
pub(crate) struct Host<'a> {
    /// The embedding program's own tools, by name.
    pub(crate) natives: Option<&'a HashMap<String, Tool>>,
    /// Whether no program adds tools to those of the manifest.
    pub(crate) is_standalone: bool,
    /// Whether warnings about OpenAPI documents are reported, before the sources are listed.
    pub(crate) warns_of_documents: bool,
    /// The ports on which the service listens, once it does.
    pub(crate) own_ports: OwnPorts,
    /// The access tokens of the service's tools.
    pub(crate) token_sources: TokenSources,
}

/// Reads a manifest and everything it includes. `natives` are the embedding program's own tools, by
/// name.
///
/// # Errors
/// All findings, including warnings, if there is at least one error.
pub fn load(
    path: &Path,
    input: &dyn ManifestInput,
    natives: &HashMap<String, Tool>,
) -> Result<Manifest, Vec<Finding>> {
    load_for_host(
        path,
        input,
        &Host {
            natives: Some(natives),
            ..Host::default()
        },
    )
}

/// The same as [`load`], for this host.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_for_host(
    path: &Path,
    input: &dyn ManifestInput,
    host: &Host<'_>,
) -> Result<Manifest, Vec<Finding>> {
    let Loaded {
        manifest,
        mut findings,
        ..
    } = read_manifest(path, input, host);
    // Errors come first.
    findings.sort_by_key(|finding| finding.severity);
    match manifest {
        Some(mut manifest)
            if findings
                .iter()
                .all(|finding| finding.severity != Severity::Error) =>
        {
            manifest.warnings = findings;
            Ok(manifest)
        }
        _ => Err(findings),
    }
}

/// The result of reading, whether the manifest can be used or not.
pub(super) struct Loaded {
    pub(super) manifest: Option<Manifest>,
    pub(super) findings: Vec<Finding>,
    /// Findings about entries of tool lists, as far as they are known before the sources are
    /// listed.
    pub(super) list_findings: Vec<Finding>,
    pub(super) parsed: ParsedManifest,
}

/// Reads one entry of such a section. Returns the source, and the entries of its tools.
type ReadSource = fn(&mut ToolReader<'_>, &str, &Node) -> Option<(DeclaredSource, Vec<ParsedTool>)>;

/// The sections that declare sources: the key, the plural for messages, and the function that reads
/// an entry.
const SOURCE_SECTIONS: [(&str, &str, ReadSource); 3] = [
    ("python_modules", "modules", |reader, name, node| {
        reader.read_module(name, node)
    }),
    (MCP_SERVERS, "servers", |reader, name, node| {
        reader.read_server(name, node)
    }),
    (OPENAPI, "APIs", |reader, name, node| {
        reader.read_api(name, node)
    }),
];

/// Reads the file and everything that it includes.
pub(super) fn read_manifest(path: &Path, input: &dyn ManifestInput, host: &Host<'_>) -> Loaded {
    let no_natives = HashMap::new();
    let natives = host.natives.unwrap_or(&no_natives);
    let mut loader = Loader {
        input,
        natives,
        is_standalone: host.is_standalone,
        warns_of_documents: host.warns_of_documents,
        findings: Findings::default(),
        secrets: BTreeSet::new(),
        names: TakenNames::default(),
        parsed: ParsedManifest::default(),
        clients: HttpClients::new(host.own_ports.clone()).with_token_sources(&host.token_sources),
        databases: match Databases::new(|name| input.env_var(name)) {
            // A password may be missing, too.
            databases if input.accepts_missing_secrets() => databases.without_servers(),
            databases => databases,
        },
        callers: Vec::new(),
    };
    let mut manifest = loader.load_manifest(path);
    let mut findings = loader.findings.0;
    // If something could not be read, the list of names is incomplete.
    let is_complete = findings
        .iter()
        .all(|finding| finding.rule != Rule::Unreadable)
        && loader.parsed.tools.iter().all(|tool| tool.tool.is_some());
    let list_findings = manifest.as_mut().map(|manifest| {
        manifest
            .tool_lists
            .extend(tool_lists::agent_lists(&loader.parsed.tools));
        let natives: Vec<&str> = natives
            .values()
            .flat_map(|tool| tool.definition.names())
            .collect();
        tool_lists::check_lists(manifest, &loader.parsed, &natives, host.is_standalone)
    });
    let list_findings = list_findings.filter(|_| is_complete).unwrap_or_default();
    let (list_errors, list_findings): (Vec<_>, Vec<_>) = list_findings
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error);
    findings.extend(list_errors);
    // A message may quote a value that replaced a reference, so such values are removed.
    let redactor =
        Redactor::with_min_length(SHORTEST_SECRET, loader.secrets.iter().map(String::as_str));
    for finding in &mut findings {
        finding.message = redactor.redact_text(&finding.message).into_owned();
    }
    if let Some(manifest) = &mut manifest {
        manifest.secrets = loader.secrets.into_iter().collect();
    }
    Loaded {
        manifest,
        findings,
        list_findings,
        parsed: loader.parsed,
    }
}

struct Loader<'a> {
    input: &'a dyn ManifestInput,
    natives: &'a HashMap<String, Tool>,
    is_standalone: bool,
    warns_of_documents: bool,
    findings: Findings,
    secrets: BTreeSet<String>,
    names: TakenNames,
    parsed: ParsedManifest,
    clients: HttpClients,
    databases: Databases,
    callers: Vec<CallerSettings>,
}

impl Loader<'_> {
    fn load_manifest(&mut self, path: &Path) -> Option<Manifest> {
        let root = parse_file(path, self.input, &mut self.findings)?;
        let base = parent_folder(path);
        self.parsed.root = Some(root.clone());
        self.findings
            .report_unknown_keys(&root, "", &MANIFEST_SECTIONS);
        let (mut manifest, mut listen) = (Manifest::default(), None);
        if let Some(section) = self.decode_section::<Server>(&root, "server", &base) {
            (manifest.server, listen) = read_server(&root, section, &mut self.findings);
            manifest.listen = listen.clone().unwrap_or(manifest.listen);
        }
        if let Some(section) = self.decode_section::<Compat>(&root, "compat", &base) {
            manifest.server.serves_toolbox = section.toolbox;
        }
        let mut capture = None;
        if let Some(section) = self.decode_section::<Ledger>(&root, "ledger", &base) {
            check_ledger(&root, &section, &mut self.findings);
            capture = section.capture;
            manifest.digest_key = section
                .digest_key
                .as_deref()
                .and_then(DigestKey::from_secret);
            // The default file is in the working folder. A file that the manifest names is relative
            // to the manifest.
            let base = if section.url.is_some() {
                base.clone()
            } else {
                PathBuf::new()
            };
            let url = section.url.unwrap_or_else(|| DEFAULT_LEDGER.into());
            let retention = section.retention.map(|time| time.0);
            let max_bytes = section.max_bytes.map(|size| size.0);
            let (durability, when_down) = (section.durability, section.when_down);
            manifest.ledger = ledger::Settings {
                url,
                base,
                durability,
                when_down,
                retention,
                max_bytes,
                accept_loss: false,
            };
        }
        if let Some(section) = self.decode_section::<Cache>(&root, "cache", &base) {
            manifest.cache_bytes = section
                .max_bytes
                .map_or(manifest.cache_bytes, |size| size.0);
            manifest.redis = read_redis(&root, section.redis.as_deref(), &mut self.findings);
            let password = manifest.redis.as_ref().and_then(RedisAddress::password);
            self.secrets.extend(password);
        }
        if let Some(calls) = self.decode_section::<CallSettings>(&root, "calls", &base) {
            check_calls(&root, &calls, &mut self.findings);
            manifest.calls = calls;
        }
        if let Some(section) = self.decode_section::<Approvals>(&root, "approvals", &base) {
            let public_url = manifest.server.public_url.as_ref();
            let secrets = section.notify.iter().map(|entry| entry.secret.clone());
            self.secrets.extend(secrets);
            manifest.approvals = read_approvals(&root, section, public_url, &mut self.findings);
        }
        if let Some(section) = self.decode_section::<Telemetry>(&root, "telemetry", &base) {
            manifest.telemetry = Some(read_telemetry(&root, section, &mut self.findings));
        }
        (manifest.callers, manifest.tool_lists) = callers::read_callers(
            &root,
            &base,
            self.input,
            &mut self.secrets,
            &mut self.findings,
        );
        self.callers.clone_from(&manifest.callers);
        let mut defaults = self
            .decode_section::<PolicyEntry>(&root, "defaults", &base)
            .unwrap_or_default();
        defaults.capture = defaults.capture.or(capture);
        manifest.capture = capture.unwrap_or_default();
        if let (Some(cache), Some(node)) = (&mut defaults.cache, root.get("defaults"))
            && let Some(text) = &cache.when
            && policy::compile_cache_condition(text, node, "defaults", &mut self.findings).is_none()
        {
            // Reported once here instead of for every tool.
            cache.when = None;
        }
        self.read_tools(&root, &base, &defaults, &mut manifest);
        self.read_sources(&root, &base, &defaults, &mut manifest);
        self.read_includes(&root, &base, &defaults, &mut manifest);
        if manifest
            .sources
            .iter()
            .any(|source| source.settings.can_be_pinned())
            || self
                .parsed
                .sources
                .iter()
                .any(|source| source.section == MCP_SERVERS)
        {
            manifest.pins = lock::read_pins(path, self.input, &mut self.findings);
        }
        if let Some(pins) = manifest.pins.clone() {
            lock::apply_pins(&mut manifest, &pins);
            self.parsed.pins = Some(pins);
        }
        for (name, message) in listen
            .iter()
            .flat_map(|listen| self_references(&manifest, listen))
        {
            let parsed_source = self
                .parsed
                .sources
                .iter()
                .find(|source| source.section == MCP_SERVERS && source.name == name);
            let entry_path = join_path(MCP_SERVERS, &[name.to_owned()]);
            parsed_source.inspect(|parsed_source| {
                self.findings
                    .error(&parsed_source.entry, &["url".into()], &entry_path, message);
            });
        }
        self.warn_without_tools(&root, &manifest);
        name_conflicts::report_conflicts(&manifest, &self.names, &mut self.findings.0);
        manifest.defaults = Defaults(defaults);
        Some(manifest)
    }

    fn warn_without_tools(&mut self, root: &Node, manifest: &Manifest) {
        let has_errors = self
            .findings
            .0
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        if self.is_standalone
            && !has_errors
            && manifest.tools.is_empty()
            && manifest.sources.is_empty()
        {
            let message =
                "declares no tools: add `tools:`, `python_modules:`, `mcp_servers:` or `openapi:`";
            self.findings
                .warning_with_rule(Rule::NoTools, root, &[], "", message);
        }
    }

    fn decode_section<T: serde::de::DeserializeOwned + schemars::JsonSchema>(
        &mut self,
        root: &Node,
        name: &str,
        base: &Path,
    ) -> Option<T> {
        let mut node = root.get(name)?.clone();
        self.resolve_references(&mut node, name, base);
        if node.entries().is_none() {
            return self.findings.decode(&node, name);
        }
        let known = field_names::<T>();
        self.findings.report_unknown_keys(&node, name, known);
        self.findings
            .decode(&node.filtered(|key| known.contains(&key)), name)
    }

    fn resolve_references(&mut self, node: &mut Node, entry_path: &str, base: &Path) {
        let secrets = std::mem::take(&mut self.secrets);
        let mut references = References::new(self.input, base, secrets);
        references.resolve(node, entry_path, &mut self.findings);
        self.secrets = references.secrets;
    }

    fn read_tools(
        &mut self,
        root: &Node,
        base: &Path,
        defaults: &PolicyEntry,
        manifest: &mut Manifest,
    ) {
        let Some(node) = root.get("tools") else {
            return;
        };
        let Some(entries) = self.findings.require_names(node, "tools", "tools") else {
            return;
        };
        for (key, entry) in entries {
            let entry_path = format!("tools.{}", key.text);
            if let Err(taken) = self.names.take_tool(key, &entry_path) {
                self.findings.0.push(taken);
                continue;
            }
            let corrected = correct_indentation(entry, &entry_path, &mut self.findings);
            let entry = corrected.as_ref().unwrap_or(entry);
            let tool = self
                .tool_reader(base, defaults)
                .read_tool(&key.text, entry)
                .filter(|_| corrected.is_none());
            let (key, entry, base) = (key.clone(), entry.clone(), base.to_owned());
            let parsed_tool = ParsedTool {
                key,
                path: entry_path,
                entry,
                tool: tool.clone(),
                base,
            };
            self.findings
                .0
                .extend(self.names.take_aliases(&parsed_tool));
            let (key, entry) = (parsed_tool.key.clone(), parsed_tool.entry.clone());
            self.parsed.tools.push(parsed_tool);
            let Some(tool) = tool else { continue };
            let native_name = entry.get("use").map(Node::to_json);
            let native_name = native_name
                .as_ref()
                .and_then(|word| word.as_str())
                .unwrap_or(&key.text);
            if tool.kind == Kind::Native && self.natives.contains_key(native_name) {
                manifest.replaced_natives.push(native_name.to_owned());
            }
            manifest.tools.push(tool);
        }
    }

    fn tool_reader<'a>(&'a mut self, base: &'a Path, defaults: &'a PolicyEntry) -> ToolReader<'a> {
        ToolReader {
            input: self.input,
            base,
            defaults,
            natives: self.natives,
            origin: Origin::Manifest,
            clients: &self.clients,
            databases: &self.databases,
            callers: &self.callers,
            warns_of_documents: self.warns_of_documents,
            secrets: &mut self.secrets,
            findings: &mut self.findings,
        }
    }

    fn read_sources(
        &mut self,
        root: &Node,
        base: &Path,
        defaults: &PolicyEntry,
        manifest: &mut Manifest,
    ) {
        for (section, what, read) in SOURCE_SECTIONS {
            let Some(node) = root.get(section) else {
                continue;
            };
            let Some(entries) = self.findings.require_names(node, section, what) else {
                continue;
            };
            for (key, entry) in entries {
                let (name, entry_path) = (key.text.clone(), format!("{section}.{}", key.text));
                if let Err(taken) = self.names.take_source(key, &entry_path) {
                    self.findings.0.push(taken);
                    continue;
                }
                let (entry, base) = (entry.clone(), base.to_owned());
                let read = read(&mut self.tool_reader(&base, defaults), &name, &entry);
                let kind = read.as_ref().map(|(declared, _)| declared.settings.kind());
                if let Some(message) = kind.and_then(missing_feature) {
                    self.findings.error(&entry, &[], &entry_path, message);
                }
                self.parsed.sources.push(ParsedSource {
                    section,
                    name,
                    entry,
                    base,
                });
                let Some((declared, tools)) = read else {
                    continue;
                };
                for tool in &tools {
                    let taken = self.names.take_tool(&tool.key, &tool.path).err();
                    self.findings.0.extend(taken);
                    self.findings.0.extend(self.names.take_aliases(tool));
                }
                self.parsed.tools.extend(tools);
                manifest.sources.push(declared);
            }
        }
    }

    fn read_includes(
        &mut self,
        root: &Node,
        base: &Path,
        defaults: &PolicyEntry,
        manifest: &mut Manifest,
    ) {
        let Some(node) = root.get("include") else {
            return;
        };
        let Some(patterns) = self.findings.decode::<Vec<String>>(node, "include") else {
            return;
        };
        for (at, pattern) in patterns.iter().enumerate() {
            let path = [at.to_string()];
            let files = match self
                .input
                .matching_files(&base.join(pattern).to_string_lossy())
            {
                Ok(files) => files,
                Err(message) => {
                    self.findings.error(node, &path, "include", message);
                    continue;
                }
            };
            if files.is_empty() && !pattern.contains(['*', '?', '[']) {
                self.findings.error(
                    node,
                    &path,
                    "include",
                    format!("there is no file {pattern}"),
                );
            }
            for file in files {
                let Some(included) = parse_file(&file, self.input, &mut self.findings) else {
                    continue;
                };
                for (key, _) in included.entries().unwrap_or_default() {
                    if MANIFEST_SECTIONS.contains(&key.text.as_str())
                        && !INCLUDABLE_SECTIONS.contains(&key.text.as_str())
                    {
                        let message = "an included file holds tools only; this belongs in the manifest itself";
                        self.findings.error(
                            &included,
                            std::slice::from_ref(&key.text),
                            "",
                            message,
                        );
                    }
                }
                let known = |key: &str| {
                    INCLUDABLE_SECTIONS.contains(&key) || !MANIFEST_SECTIONS.contains(&key)
                };
                self.findings.report_unknown_keys(
                    &included.filtered(known),
                    "",
                    &INCLUDABLE_SECTIONS,
                );
                self.read_tools(&included, &parent_folder(&file), defaults, manifest);
                self.read_sources(&included, &parent_folder(&file), defaults, manifest);
            }
        }
    }
}
