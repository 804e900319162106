//! Loads a file, and the files it includes, as a [`Manifest`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::apis::ApiEntry;
use super::decode::{Entry, Findings, field_names};
use super::file::{parent_folder, parse_file};
use super::finding::{Finding, Severity, join_path};
use super::inputs::Inputs;
use super::misplaced_keys::correct_indentation;
use super::modules::ModuleEntry;
use super::name_conflicts::{TakenNames, take_name};
use super::node::Node;
use super::parsed::{
    MCP_SERVERS, OPENAPI, ParsedManifest, ParsedSource, ParsedTool, TOOL_SECTIONS,
};
use super::read_files::ReadFiles;
use super::references::{ManifestInput, References, Secrets};
use super::rule::Rule;
use super::schema::Sections;
use super::sections::{
    Approvals, Cache, Compat, Ledger, PolicyEntry, ProgramDefaults, Results, Server, Telemetry,
};
use super::self_reference::self_references;
use super::servers::ServerEntry;
use super::service_sections::{
    check_calls, check_ledger, read_approvals, read_server, read_telemetry,
};
use super::source_tools::read_source;
use super::tool::read_tool;
use super::tool_lists::ListKind;
use super::typescript_modules::TypescriptEntry;
use super::{
    DEFAULT_LEDGER, DeclaredSource, Defaults, Manifest, callers, lock, name_conflicts, policy,
    tool_lists, toolsets,
};
use crate::cache::RedisAddress;
use crate::call::units::Tokens;
use crate::call::{CallSettings, DigestKey, Kind, Origin};
use crate::kinds::sandbox::SandboxDefaults;
use crate::kinds::table::missing_feature;
use crate::kinds::{Databases, HttpClients, OwnPorts, Sandboxes, TokenSources, Tool};
use crate::ledger;
use crate::secrets::Redactor;

/// The shortest value that is removed from messages. One or two letters would be found in every
/// word.
const SHORTEST_SECRET: usize = 3;
/// The built-ins that find and call tools.
const DISCOVERY_TOOLS: [&str; 2] = ["search_tools", "call_tool"];
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
    /// What the sandboxes of the service share.
    pub(crate) sandboxes: Sandboxes,
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
    let recorder = ReadFiles::new(input);
    let Loaded {
        manifest,
        mut findings,
        ..
    } = read_manifest(path, &recorder, host);
    // Errors come first.
    findings.sort_by_key(|finding| finding.severity);
    match manifest {
        Some(mut manifest) if !findings.iter().any(Finding::is_error) => {
            manifest.warnings = findings;
            host.sandboxes
                .set_files(recorder.into_service_files(path, &manifest));
            host.sandboxes
                .set_required(manifest.server.requires_sandbox);
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
type ReadSource = fn(&Inputs<'_>, &str, Entry<'_>) -> Option<(DeclaredSource, Vec<ParsedTool>)>;

/// The sections that declare sources: the key, the plural for messages, and the function that reads
/// an entry.
const SOURCE_SECTIONS: [(&str, &str, ReadSource); 4] = [
    ("python_modules", "modules", read_source::<ModuleEntry>),
    (
        "typescript_modules",
        "modules",
        read_source::<TypescriptEntry>,
    ),
    (MCP_SERVERS, "servers", read_source::<ServerEntry>),
    (OPENAPI, "APIs", read_source::<ApiEntry>),
];

/// Reads the file and everything that it includes.
pub(super) fn read_manifest(path: &Path, input: &dyn ManifestInput, host: &Host<'_>) -> Loaded {
    let no_natives = HashMap::new();
    let natives = host.natives.unwrap_or(&no_natives);
    let (findings, secrets) = (Findings::default(), Secrets::default());
    let mut loader = Loader {
        input,
        natives,
        host,
        findings: &findings,
        secrets: &secrets,
        names: TakenNames::default(),
        parsed: ParsedManifest::default(),
        clients: HttpClients::new(host.own_ports.clone(), host.token_sources.clone()),
        // A password may be missing, too.
        databases: Databases::new(|name| input.env_var(name), input.accepts_missing_secrets()),
        sandboxes: SandboxDefaults {
            shared: host.sandboxes.clone(),
            ..SandboxDefaults::default()
        },
        defaults: PolicyEntry::default(),
        manifest: Manifest::default(),
    };
    let is_read = loader.load_manifest(path).is_some();
    let Loader {
        parsed, manifest, ..
    } = loader;
    let mut manifest = is_read.then_some(manifest);
    let mut findings = findings.into_list();
    // If something could not be read, the list of names is incomplete.
    let is_complete = findings
        .iter()
        .all(|finding| finding.rule != Rule::Unreadable)
        && parsed.tools.iter().all(|tool| tool.tool.is_some());
    let list_findings = manifest.as_mut().map(|manifest| {
        let of_agents = tool_lists::agent_lists(&parsed.tools);
        manifest.tool_lists.extend(of_agents);
        let natives: Vec<_> = natives.values().map(|tool| &tool.definition).collect();
        tool_lists::check_lists(manifest, &parsed, &natives, host.is_standalone)
    });
    let list_findings = list_findings.filter(|_| is_complete).unwrap_or_default();
    let (list_errors, list_findings): (Vec<_>, Vec<_>) =
        list_findings.into_iter().partition(Finding::is_error);
    findings.extend(list_errors);
    // A message may quote a value that replaced a reference, so such values are removed.
    let secrets = secrets.into_list();
    if !findings.is_empty() {
        let texts = secrets.iter().map(String::as_str);
        let redactor = Redactor::with_min_length(SHORTEST_SECRET, texts);
        for finding in &mut findings {
            finding.message = redactor.redact_text(&finding.message).into_owned();
        }
    }
    if let Some(manifest) = &mut manifest {
        manifest.secrets = secrets;
    }
    Loaded {
        manifest,
        findings,
        list_findings,
        parsed,
    }
}

struct Loader<'a> {
    input: &'a dyn ManifestInput,
    natives: &'a HashMap<String, Tool>,
    host: &'a Host<'a>,
    findings: &'a Findings,
    secrets: &'a Secrets,
    names: TakenNames,
    parsed: ParsedManifest,
    clients: HttpClients,
    databases: Databases,
    /// `defaults.sandbox:`
    sandboxes: SandboxDefaults,
    /// `defaults:`
    defaults: PolicyEntry,
    manifest: Manifest,
}

impl Loader<'_> {
    fn load_manifest(&mut self, path: &Path) -> Option<()> {
        let root = parse_file(path, self.input, self.findings)?;
        let base = parent_folder(path);
        self.parsed.root = Some(root.clone());
        let whole = self.findings.entry(&root, "");
        whole.report_unknown_keys(field_names::<Sections>());
        let listen = self.read_settings(whole, &base);
        self.read_tools(&root, &base);
        self.read_sources(&root, &base);
        self.read_includes(&root, &base);
        self.add_discovery_tools(&root, &base);
        let is_server = |source: &ParsedSource| source.section == MCP_SERVERS;
        let can_be_pinned = |source: &DeclaredSource| source.settings.can_be_pinned();
        if self.manifest.sources.iter().any(can_be_pinned)
            || self.parsed.sources.iter().any(is_server)
        {
            self.manifest.pins = lock::read_pins(path, self.input, self.findings);
        }
        if let Some(pins) = self.manifest.pins.clone() {
            lock::apply_pins(&mut self.manifest, &pins);
            self.parsed.pins = Some(pins);
        }
        for (name, message) in listen
            .iter()
            .flat_map(|listen| self_references(&self.manifest, listen))
        {
            let mut servers = self
                .parsed
                .sources
                .iter()
                .filter(|source| is_server(source));
            if let Some(source) = servers.find(|source| source.name == name) {
                let path = join_path(MCP_SERVERS, &[name]);
                self.findings
                    .entry(&source.entry, &path)
                    .error(&["url"], message);
            }
        }
        if self.host.is_standalone
            && !self.findings.has_error(0, |_| true)
            && self.manifest.tools.is_empty()
            && self.manifest.sources.is_empty()
        {
            let message = "declares no tools: add `tools:`, `python_modules:`, `typescript_modules:`, `mcp_servers:` or \
                 `openapi:`";
            whole.report::<&str>(Severity::Warning, Rule::NoTools, &[], message);
        }
        if let Some(node) = root.get("defaults")
            && self.manifest.sources.is_empty()
            && !self.findings.has_error(0, |_| true)
        {
            let tools = self.manifest.tools.iter();
            let schemas: Vec<_> = tools.map(|tool| &*tool.definition.input_schema).collect();
            let entry = self.findings.entry(node, "defaults");
            for (keys, message) in policy::unknown_arguments(&self.defaults, &schemas) {
                entry.warning(&keys, message);
            }
        }
        name_conflicts::report_conflicts(&self.manifest, &self.names, self.findings);
        self.manifest.defaults = Defaults(std::mem::take(&mut self.defaults));
        Some(())
    }

    /// Reads the sections that declare no tools. Returns the listen address, if there is one.
    fn read_settings(&mut self, root: Entry<'_>, base: &Path) -> Option<String> {
        let mut listen = None;
        if let Some(section) = self.decode_section::<Server>(root, "server", base) {
            (self.manifest.server, listen) = read_server(root, section);
            if let Some(listen) = &listen {
                self.manifest.listen.clone_from(listen);
            }
        }
        if let Some(section) = self.decode_section::<Compat>(root, "compat", base) {
            self.manifest.server.serves_toolbox = section.toolbox;
        }
        let mut capture = None;
        if let Some(section) = self.decode_section::<Ledger>(root, "ledger", base) {
            check_ledger(root, &section);
            capture = section.capture;
            let digest_key = section.digest_key.as_deref();
            self.manifest.digest_key = digest_key.and_then(DigestKey::from_secret);
            self.manifest.ledger = ledger::Settings {
                // The default file is in the working folder. A file that the manifest names is
                // relative to the manifest.
                base: match section.url {
                    Some(_) => base.to_owned(),
                    None => PathBuf::new(),
                },
                url: section.url.unwrap_or_else(|| DEFAULT_LEDGER.into()),
                durability: section.durability,
                when_down: section.when_down,
                retention: section.retention.map(|time| time.0),
                max_bytes: section.max_bytes.map(|size| size.0),
                accept_loss: false,
            };
        }
        if let Some(section) = self.decode_section::<Cache>(root, "cache", base) {
            if let Some(size) = section.max_bytes {
                self.manifest.cache_bytes = size.0;
            }
            let address = section.redis.as_deref().map(RedisAddress::parse);
            self.manifest.redis = address.and_then(|address| {
                let error = |message| root.error(&["cache", "redis"], message);
                address.map_err(error).ok()
            });
            let redis = self.manifest.redis.as_ref();
            self.secrets.extend(redis.and_then(RedisAddress::password));
        }
        if let Some(section) = self.decode_section::<Results>(root, "results", base) {
            let tokens = section.reference_above;
            self.manifest.reference_above = tokens.map(Tokens::characters);
        }
        if let Some(calls) = self.decode_section::<CallSettings>(root, "calls", base) {
            check_calls(root, &calls);
            self.manifest.calls = calls;
        }
        if let Some(section) = self.decode_section::<Approvals>(root, "approvals", base) {
            let secrets = section.notify.iter().map(|entry| entry.secret.clone());
            self.secrets.extend(secrets);
            let public_url = self.manifest.server.public_url.as_ref();
            self.manifest.approvals = read_approvals(root, section, public_url);
        }
        if let Some(section) = self.decode_section::<Telemetry>(root, "telemetry", base) {
            self.manifest.telemetry = Some(read_telemetry(root, section));
        }
        self.manifest.calls.discovery = self.decode_section(root, "discovery", base);
        (self.manifest.callers, self.manifest.tool_lists) =
            callers::read_callers(root.node, base, self.input, self.secrets, self.findings);
        let (toolsets, entries) = toolsets::read_toolsets(root, self.findings);
        self.manifest.toolsets = toolsets;
        self.manifest.tool_lists.extend(entries);
        if let Some(node) = root.get("discovery") {
            let entries = tool_lists::list_entries(ListKind::Keep, node, "discovery", "keep");
            self.manifest.tool_lists.extend(entries);
        }
        self.read_defaults(root, base);
        if let Some(node) = root.get("defaults") {
            let entry = self.findings.entry(node, "defaults");
            policy::check_call_conditions(&self.defaults, &self.inputs(base), entry);
        }
        self.defaults.capture = self.defaults.capture.or(capture);
        self.manifest.capture = capture.unwrap_or_default();
        if let (Some(cache), Some(node)) = (&mut self.defaults.cache, root.get("defaults"))
            && let Some(text) = &cache.when
            && policy::compile_cache_condition(text, self.findings.entry(node, "defaults"))
                .is_none()
        {
            // Reported once here instead of for every tool.
            cache.when = None;
        }
        listen
    }

    fn read_defaults(&mut self, root: Entry<'_>, base: &Path) {
        let Some(node) = root.get("defaults") else {
            return;
        };
        let of_programs = field_names::<ProgramDefaults>();
        let is_of_program = |key: &str| of_programs.contains(&key);
        let programs = node.filtered(is_of_program);
        let entry = self.findings.entry(&programs, "defaults");
        let own = entry.decode_keys::<ProgramDefaults>(of_programs);
        let setting = own.and_then(|own| own.sandbox);
        self.sandboxes.setting = self.sandboxes.setting(setting, base);
        let policies = match node.entries() {
            Some(_) => node.filtered(|key| !is_of_program(key)),
            None => node.clone(),
        };
        self.defaults = self
            .decode_node(policies, "defaults", base)
            .unwrap_or_default();
    }

    fn decode_section<T: serde::de::DeserializeOwned + schemars::JsonSchema>(
        &self,
        root: Entry<'_>,
        name: &str,
        base: &Path,
    ) -> Option<T> {
        self.decode_node(root.get(name)?.clone(), name, base)
    }

    fn decode_node<T: serde::de::DeserializeOwned + schemars::JsonSchema>(
        &self,
        mut node: Node,
        name: &str,
        base: &Path,
    ) -> Option<T> {
        References::new(self.input, base, self.secrets, self.findings).resolve(&mut node, name);
        let section = self.findings.entry(&node, name);
        if node.entries().is_none() {
            return section.decode();
        }
        let known = field_names::<T>();
        section.report_unknown_keys(known);
        section.decode_keys(known)
    }

    fn inputs<'l>(&'l self, base: &'l Path) -> Inputs<'l> {
        Inputs {
            input: self.input,
            base,
            defaults: &self.defaults,
            natives: self.natives,
            origin: Origin::Manifest,
            clients: &self.clients,
            databases: &self.databases,
            sandboxes: &self.sandboxes,
            callers: &self.manifest.callers,
            warns_of_documents: self.host.warns_of_documents,
            secrets: self.secrets,
        }
    }

    fn read_tools(&mut self, root: &Node, base: &Path) {
        let findings = self.findings;
        let section = root.get("tools").map(|node| findings.entry(node, "tools"));
        let entries = section.and_then(|section| section.require_names("tools"));
        for (key, entry) in entries.unwrap_or_default() {
            let path = format!("tools.{}", key.text);
            if let Err(taken) = take_name(&mut self.names.tools, key, &path) {
                findings.push(taken);
                continue;
            }
            let corrected = correct_indentation(entry, &path, findings);
            let entry = corrected.as_ref().unwrap_or(entry);
            let tool = read_tool(&self.inputs(base), &key.text, findings.entry(entry, &path))
                .filter(|_| corrected.is_none());
            let parsed_tool = ParsedTool {
                key: key.clone(),
                path,
                entry: entry.clone(),
                tool: tool.clone(),
                base: base.to_owned(),
            };
            findings.extend(self.names.take_aliases(&parsed_tool));
            self.parsed.tools.push(parsed_tool);
            let Some(tool) = tool else { continue };
            let native_name = entry.get("use").and_then(Node::as_str).unwrap_or(&key.text);
            if tool.kind == Kind::Native && self.natives.contains_key(native_name) {
                self.manifest.replaced_natives.push(native_name.to_owned());
            }
            self.manifest.tools.push(tool);
        }
    }

    /// Adds the built-ins to which `discovery` shortens lists, unless the manifest declares them.
    fn add_discovery_tools(&mut self, root: &Node, base: &Path) {
        let is_declared = |tool: &Tool| tool.runner.traits().finds_tools;
        let node = root.get("discovery").filter(|_| {
            self.manifest.calls.discovery.is_some() && !self.manifest.tools.iter().any(is_declared)
        });
        let Some(node) = node else { return };
        let declaration = Node::from_foreign_json(&json!({"kind": "native"}), &node.location);
        for name in DISCOVERY_TOOLS {
            let entry = self.findings.entry(&declaration, "discovery");
            if self.names.tools.contains_key(name) {
                let message = format!(
                    "adds the built-in `{name}`, but another tool has this name: rename it, or declare both built-ins of \
                     `discovery` in `tools`, under names of your own"
                );
                entry.own_error(message);
                continue;
            }
            let tool = read_tool(&self.inputs(base), name, entry);
            self.manifest.tools.extend(tool);
        }
    }

    fn read_sources(&mut self, root: &Node, base: &Path) {
        let findings = self.findings;
        for (section, what, read) in SOURCE_SECTIONS {
            let node = root.get(section).map(|node| findings.entry(node, section));
            let entries = node.and_then(|node| node.require_names(what));
            for (key, entry) in entries.unwrap_or_default() {
                let path = format!("{section}.{}", key.text);
                if let Err(taken) = take_name(&mut self.names.sources, key, &path) {
                    findings.push(taken);
                    continue;
                }
                let unresolved = findings.entry(entry, &path);
                let read = read(&self.inputs(base), &key.text, unresolved);
                let kind = read.as_ref().map(|(declared, _)| declared.settings.kind());
                if let Some(message) = kind.and_then(missing_feature) {
                    unresolved.own_error(message);
                }
                self.parsed.sources.push(ParsedSource {
                    section,
                    name: key.text.clone(),
                    entry: entry.clone(),
                    base: base.to_owned(),
                });
                let Some((declared, tools)) = read else {
                    continue;
                };
                for tool in &tools {
                    findings.extend(take_name(&mut self.names.tools, &tool.key, &tool.path).err());
                    findings.extend(self.names.take_aliases(tool));
                }
                self.parsed.tools.extend(tools);
                self.manifest.sources.push(declared);
            }
        }
    }

    fn read_includes(&mut self, root: &Node, base: &Path) {
        let Some(node) = root.get("include") else {
            return;
        };
        let include = self.findings.entry(node, "include");
        let patterns: Vec<String> = include.decode().unwrap_or_default();
        for (at, pattern) in patterns.iter().enumerate() {
            let keys = [at.to_string()];
            let files = self
                .input
                .matching_files(&base.join(pattern).to_string_lossy());
            let files = files.unwrap_or_else(|message| {
                include.error(&keys, message);
                Vec::new()
            });
            if files.is_empty() && !pattern.contains(['*', '?', '[']) {
                include.error(&keys, format!("there is no file {pattern}"));
            }
            for file in files {
                let Some(included) = parse_file(&file, self.input, self.findings) else {
                    continue;
                };
                let sections = field_names::<Sections>();
                let is_elsewhere =
                    |key: &str| !TOOL_SECTIONS.contains(&key) && sections.contains(&key);
                for (key, _) in included.entries().unwrap_or_default() {
                    if is_elsewhere(&key.text) {
                        let message = "an included file holds tools only; this belongs in the manifest itself";
                        self.findings
                            .entry(&included, "")
                            .error(&[&key.text], message);
                    }
                }
                let known = included.filtered(|key| !is_elsewhere(key));
                self.findings
                    .entry(&known, "")
                    .report_unknown_keys(&TOOL_SECTIONS);
                self.read_tools(&included, &parent_folder(&file));
                self.read_sources(&included, &parent_folder(&file));
            }
        }
    }
}
