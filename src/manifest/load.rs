//! Loads a file, and the files it includes, as a [`Manifest`].

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::callers;
use super::clashes;
use super::decode::{Findings, fields, join};
use super::finding::{Finding, Place, Severity};
use super::itself::mounted;
use super::lock;
use super::node::{Key, Node};
use super::references::{References, Source};
use super::rule::Rule;
use super::sections::{Cache, Ledger, PolicyEntry, Server};
use super::tool::{self, ToolReader};
use super::tool_lists;
use super::{DEFAULT_LEDGER, DeclaredSource, Defaults, Manifest};
use crate::call::{CallSettings, DigestKey, Kind, Origin};
use crate::http::ServerSettings;
use crate::ledger;
use crate::pins::Pins;
use crate::secrets::Redactor;
use crate::tools::{Clients, Databases, OwnPorts, Tool};

const SECTIONS: [&str; 10] =
    ["server", "ledger", "cache", "calls", "callers", "include", "defaults", "tools", "python_modules", "mcp_servers"];
/// The shortest value that is removed from messages. One or two letters would be found in every word.
const SHORTEST_SECRET: usize = 3;
const INCLUDED: [&str; 3] = ["tools", "python_modules", "mcp_servers"];

/// The program that reads a manifest.
#[derive(Default)]
pub(crate) struct Host<'a> {
    /// The embedding program's own tools, by name.
    pub(crate) natives: Option<&'a HashMap<String, Tool>>,
    /// Whether no program adds tools to those of the manifest.
    pub(crate) is_alone: bool,
    /// The ports on which the service listens, once it does.
    pub(crate) own: OwnPorts,
}

/// Reads a manifest and everything it includes. `natives` are the embedding program's own tools, by name.
///
/// # Errors
/// All findings, including warnings, if there is at least one error.
pub fn load(path: &Path, source: &dyn Source, natives: &HashMap<String, Tool>) -> Result<Manifest, Vec<Finding>> {
    load_for(path, source, &Host { natives: Some(natives), ..Host::default() })
}

/// The same as [`load`], for this host.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_for(path: &Path, source: &dyn Source, host: &Host<'_>) -> Result<Manifest, Vec<Finding>> {
    let Loaded { manifest, mut findings, .. } = read(path, source, host);
    // Errors come first.
    findings.sort_by_key(|finding| finding.severity);
    match manifest {
        Some(mut manifest) if findings.iter().all(|finding| finding.severity != Severity::Error) => {
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
    /// Findings about entries of tool lists, as far as they are known before the sources are listed.
    pub(super) idle: Vec<Finding>,
    pub(super) written: SourceText,
}

/// The content of the files, as far as it could be read.
#[derive(Default)]
pub(super) struct SourceText {
    pub(super) root: Option<Node>,
    pub(super) tools: Vec<WrittenTool>,
    /// Entries of `python_modules:` and `mcp_servers:`.
    pub(super) sources: Vec<WrittenSource>,
    /// The approved definitions of servers' tools.
    pub(super) pins: Option<Pins>,
}

/// One entry of a section that declares sources of tools.
pub(super) struct WrittenSource {
    /// The key of its section.
    pub(super) section: &'static str,
    pub(super) name: String,
    pub(super) entry: Node,
    /// The folder at which relative paths start.
    pub(super) base: PathBuf,
}

/// Reads one entry of such a section. Returns the source, and the entries of its tools.
type ReadSource = fn(&mut ToolReader<'_>, &str, &Node) -> Option<(DeclaredSource, Vec<WrittenTool>)>;

/// The section of sources that can be pinned.
pub(super) const SERVERS: &str = "mcp_servers";
/// The sections that declare sources: the key, the plural for messages, and the function that reads an entry.
const SOURCES: [(&str, &str, ReadSource); 2] = [
    ("python_modules", "modules", |reader, name, node| reader.module(name, node)),
    (SERVERS, "servers", |reader, name, node| reader.server(name, node)),
];

/// One entry of `tools:`, at the top or in a source, and the tool made from it.
pub(super) struct WrittenTool {
    /// The name and its position.
    pub(super) key: Key,
    /// The path from the root.
    pub(super) under: String,
    pub(super) entry: Node,
    pub(super) tool: Option<Tool>,
    /// The folder at which relative paths start.
    pub(super) base: PathBuf,
}

/// Reads the file and everything that it includes.
pub(super) fn read(path: &Path, source: &dyn Source, host: &Host<'_>) -> Loaded {
    let none = HashMap::new();
    let natives = host.natives.unwrap_or(&none);
    let mut loader = Loader {
        source,
        natives,
        findings: Findings::default(),
        secrets: BTreeSet::new(),
        seen: HashMap::new(),
        sources: HashMap::new(),
        written: SourceText::default(),
        clients: Clients::new(host.own.clone()),
        databases: Databases::new(|name| source.env(name)),
    };
    let mut manifest = loader.manifest(path);
    let mut findings = loader.findings.0;
    // If something could not be read, the list of names is incomplete.
    let is_whole = findings.iter().all(|finding| finding.rule != Rule::Unreadable)
        && loader.written.tools.iter().all(|tool| tool.tool.is_some());
    let idle = manifest.as_mut().map(|manifest| {
        manifest.lists.extend(tool_lists::of_agents(&loader.written.tools));
        let natives: Vec<&str> = natives.values().flat_map(|tool| tool.definition.names()).collect();
        tool_lists::judge(manifest, &loader.written, &natives, host.is_alone)
    });
    let idle = idle.filter(|_| is_whole).unwrap_or_default();
    let (wrong, idle): (Vec<_>, Vec<_>) = idle.into_iter().partition(|finding| finding.severity == Severity::Error);
    findings.extend(wrong);
    // A message may quote a value that came by reference, so such values are removed.
    let redactor = Redactor::of_length(SHORTEST_SECRET, loader.secrets.iter().map(String::as_str));
    for finding in &mut findings {
        finding.message = redactor.text(&finding.message).into_owned();
    }
    if let Some(manifest) = &mut manifest {
        manifest.secrets = loader.secrets.into_iter().collect();
    }
    Loaded { manifest, findings, idle, written: loader.written }
}

struct Loader<'a> {
    source: &'a dyn Source,
    natives: &'a HashMap<String, Tool>,
    findings: Findings,
    secrets: BTreeSet<String>,
    /// The position where each tool name first occurred.
    seen: HashMap<String, Place>,
    /// The position where each source's name first occurred.
    sources: HashMap<String, Place>,
    written: SourceText,
    clients: Clients,
    databases: Databases,
}

impl Loader<'_> {
    fn read(&mut self, path: &Path) -> Option<Node> {
        let place = || Place { file: path.into(), line: 1, column: 1 };
        let text = match self.source.file(path) {
            Ok(text) => text,
            Err(error) => {
                let unreadable = Finding::error(place(), "", format!("cannot be read: {error}"));
                self.findings.0.push(unreadable.rule(Rule::Unreadable));
                return None;
            }
        };
        match Node::parse(path, &text) {
            Ok(node) if node.entries().is_some() => Some(node),
            Ok(_) => {
                let message = "a manifest is a map: tools, callers, server, ledger …";
                self.findings.0.push(Finding::error(place(), "", message).rule(Rule::Unreadable));
                None
            }
            Err(finding) => {
                self.findings.0.push(finding);
                None
            }
        }
    }

    fn manifest(&mut self, path: &Path) -> Option<Manifest> {
        let root = self.read(path)?;
        let base = folder(path);
        self.written.root = Some(root.clone());
        self.findings.unknown_keys(&root, "", &SECTIONS);
        let (mut manifest, mut listen) = (Manifest::default(), None);
        if let Some(server) = self.section::<Server>(&root, "server", &base) {
            listen.clone_from(&server.listen);
            manifest.listen = server.listen.unwrap_or(manifest.listen);
            let plain = ServerSettings::default();
            manifest.server = ServerSettings {
                max_body: server.max_body.map_or(plain.max_body, |size| size.as_usize()),
                max_in_flight: server.max_in_flight.unwrap_or(plain.max_in_flight),
                linger: server.linger.map_or(plain.linger, |time| time.0),
                drain: server.drain.map_or(plain.drain, |time| time.0),
                allowed_hosts: server.allowed_hosts,
                allowed_origins: server.allowed_origins,
                allow_open: server.allow_open,
            };
            if manifest.server.max_in_flight == 0 {
                let path = ["server".to_owned(), "max_in_flight".to_owned()];
                self.findings.error(&root, &path, "", "at least one call must be able to run");
            }
        }
        let mut capture = None;
        if let Some(section) = self.section::<Ledger>(&root, "ledger", &base) {
            self.ledger(&root, &section);
            capture = section.capture;
            manifest.digest_key = section.digest_key.as_deref().and_then(DigestKey::from_secret);
            // The default file is in the working folder. A file that the manifest names is relative to the manifest.
            let base = if section.url.is_some() { base.clone() } else { PathBuf::new() };
            let url = section.url.unwrap_or_else(|| DEFAULT_LEDGER.into());
            let retention = section.retention.map(|time| time.0);
            let max_bytes = section.max_bytes.map(|size| size.0);
            let durability = section.durability;
            manifest.ledger = ledger::Settings { url, base, durability, retention, max_bytes, accept_loss: false };
        }
        if let Some(section) = self.section::<Cache>(&root, "cache", &base) {
            manifest.cache_bytes = section.max_bytes.map_or(manifest.cache_bytes, |size| size.0);
        }
        if let Some(calls) = self.section::<CallSettings>(&root, "calls", &base) {
            for (key, nothing, message) in [
                ("parallel", calls.parallel == 0, "at least one call must be able to run"),
                ("max_parse_attempts", calls.max_parse_attempts == 0, "the first attempt counts too: write 1 or more"),
            ] {
                if nothing {
                    self.findings.error(&root, &["calls".to_owned(), key.to_owned()], "", message);
                }
            }
            manifest.calls = calls;
        }
        (manifest.callers, manifest.lists) =
            callers::read(&root, &base, self.source, &mut self.secrets, &mut self.findings);
        let mut defaults = self.section::<PolicyEntry>(&root, "defaults", &base).unwrap_or_default();
        defaults.capture = defaults.capture.or(capture);
        manifest.capture = capture.unwrap_or_default();
        if let (Some(cache), Some(node)) = (&mut defaults.cache, root.get("defaults"))
            && let Some(text) = &cache.when
            && tool::cache_when(text, node, "defaults", &mut self.findings).is_none()
        {
            // Reported once here instead of for every tool.
            cache.when = None;
        }
        self.tools(&root, &base, &defaults, &mut manifest);
        self.sources(&root, &base, &defaults, &mut manifest);
        self.includes(&root, &base, &defaults, &mut manifest);
        if self.written.sources.iter().any(|source| source.section == SERVERS) {
            manifest.pins = lock::read(path, self.source, &mut self.findings);
        }
        if let Some(pins) = manifest.pins.clone() {
            lock::pin(&mut manifest, &pins);
            self.written.pins = Some(pins);
        }
        for (name, message) in listen.iter().flat_map(|listen| mounted(&manifest, listen)) {
            let written = self.written.sources.iter().find(|source| source.section == SERVERS && source.name == name);
            let under = join(SERVERS, &[name.to_owned()]);
            written.inspect(|written| self.findings.error(&written.entry, &["url".into()], &under, message));
        }
        clashes::look(&manifest, &self.sources, &self.seen, &mut self.findings.0);
        manifest.defaults = Defaults(defaults);
        Some(manifest)
    }

    fn section<T: serde::de::DeserializeOwned>(&mut self, root: &Node, name: &str, base: &Path) -> Option<T> {
        let mut node = root.get(name)?.clone();
        self.resolve(&mut node, name, base);
        if node.entries().is_none() {
            self.findings.error(&node, &[], name, "a map is expected here");
            return None;
        }
        let known = fields::<T>();
        self.findings.unknown_keys(&node, name, known);
        self.findings.decode_keys(&node.filtered(|key| known.contains(&key)), name)
    }

    fn resolve(&mut self, node: &mut Node, under: &str, base: &Path) {
        let secrets = std::mem::take(&mut self.secrets);
        let mut references = References::new(self.source, base, secrets);
        references.resolve(node, under, &mut self.findings);
        self.secrets = references.secrets;
    }

    fn ledger(&mut self, root: &Node, section: &Ledger) {
        let key = |name: &str| ["ledger".to_owned(), name.to_owned()];
        if section.digest_key.as_deref().is_some_and(|secret| DigestKey::from_secret(secret).is_none()) {
            let message = "a key that cannot be guessed is needed: 16 bytes or more";
            self.findings.error(root, &key("digest_key"), "", message);
        }
        if section.url.as_deref().is_some_and(ledger::is_in_memory) {
            let message = "there is no ledger in memory: name a file, sqlite://FILE, or leave the key out";
            self.findings.error(root, &key("url"), "", message);
        }
        if section.retention.is_some_and(|keep| keep.0.is_zero()) {
            self.findings.error(root, &key("retention"), "", "at least some time is needed: leave it out to keep all");
        }
        if section.max_bytes.is_some_and(|size| size.0 < ledger::SMALLEST) {
            let smallest = bytesize::ByteSize(ledger::SMALLEST);
            let message = format!("at least {smallest} is needed: leave it out for no bound");
            self.findings.error(root, &key("max_bytes"), "", message);
        }
    }

    fn tools(&mut self, root: &Node, base: &Path, defaults: &PolicyEntry, manifest: &mut Manifest) {
        let Some(node) = root.get("tools") else { return };
        let Some(entries) = node.entries() else {
            self.findings.error(node, &[], "tools", "a map of tools is expected here");
            return;
        };
        for (key, entry) in entries {
            let under = format!("tools.{}", key.text);
            if !self.claim(key, &under) {
                continue;
            }
            let tool = self.reader(base, defaults).read(&key.text, entry);
            let (key, entry, base) = (key.clone(), entry.clone(), base.to_owned());
            let written = WrittenTool { key, under, entry, tool: tool.clone(), base };
            self.claim_aliases(&written);
            let (key, entry) = (written.key.clone(), written.entry.clone());
            self.written.tools.push(written);
            let Some(tool) = tool else { continue };
            let which = entry.get("use").map(Node::to_json);
            let which = which.as_ref().and_then(|word| word.as_str()).unwrap_or(&key.text);
            if tool.kind == Kind::Native && self.natives.contains_key(which) {
                manifest.taken.push(which.to_owned());
            }
            manifest.tools.push(tool);
        }
    }

    fn reader<'a>(&'a mut self, base: &'a Path, defaults: &'a PolicyEntry) -> ToolReader<'a> {
        ToolReader {
            source: self.source,
            base,
            defaults,
            natives: self.natives,
            origin: Origin::Manifest,
            clients: &self.clients,
            databases: &self.databases,
            secrets: &mut self.secrets,
            findings: &mut self.findings,
        }
    }

    /// Claims a name for a tool. Returns false and reports an error if the name is taken.
    fn claim(&mut self, key: &Key, under: &str) -> bool {
        if let Some(first) = self.seen.get(&key.text) {
            let message = format!("the name is taken: {}:{}:{}", first.file.display(), first.line, first.column);
            let taken = Finding::error(key.place.clone(), under, message);
            self.findings.0.push(taken.rule(Rule::DuplicateName));
            return false;
        }
        self.seen.insert(key.text.clone(), key.place.clone());
        true
    }

    fn claim_aliases(&mut self, written: &WrittenTool) {
        let WrittenTool { key, under, tool, .. } = written;
        for alias in tool.iter().flat_map(|tool| &tool.definition.aliases) {
            if let Some(first) = self.seen.insert(alias.to_string(), key.place.clone()) {
                let place = format!("{}:{}:{}", first.file.display(), first.line, first.column);
                let message = format!("the alias `{alias}` is taken: {place}");
                let taken = Finding::error(key.place.clone(), format!("{under}.aliases"), message);
                self.findings.0.push(taken.rule(Rule::DuplicateName));
            }
        }
    }

    fn sources(&mut self, root: &Node, base: &Path, defaults: &PolicyEntry, manifest: &mut Manifest) {
        for (section, what, read) in SOURCES {
            let Some(node) = root.get(section) else { continue };
            let Some(entries) = node.entries() else {
                self.findings.error(node, &[], section, format!("a map of {what} is expected here"));
                continue;
            };
            for (key, entry) in entries {
                let (name, under) = (key.text.clone(), format!("{section}.{}", key.text));
                if let Some(first) = self.sources.get(&name) {
                    let message =
                        format!("the name is taken: {}:{}:{}", first.file.display(), first.line, first.column);
                    let taken = Finding::error(key.place.clone(), under, message);
                    self.findings.0.push(taken.rule(Rule::DuplicateName));
                    continue;
                }
                self.sources.insert(name.clone(), key.place.clone());
                let (entry, base) = (entry.clone(), base.to_owned());
                let read = read(&mut self.reader(&base, defaults), &name, &entry);
                self.written.sources.push(WrittenSource { section, name, entry, base });
                let Some((declared, tools)) = read else { continue };
                for tool in &tools {
                    self.claim(&tool.key, &tool.under);
                    self.claim_aliases(tool);
                }
                self.written.tools.extend(tools);
                manifest.sources.push(declared);
            }
        }
    }

    fn includes(&mut self, root: &Node, base: &Path, defaults: &PolicyEntry, manifest: &mut Manifest) {
        let Some(node) = root.get("include") else { return };
        let Some(patterns) = self.findings.decode_value::<Vec<String>>(node, "include") else { return };
        for (at, pattern) in patterns.iter().enumerate() {
            let place = [at.to_string()];
            let files = match self.source.matching(&base.join(pattern).to_string_lossy()) {
                Ok(files) => files,
                Err(message) => {
                    self.findings.error(node, &place, "include", message);
                    continue;
                }
            };
            if files.is_empty() && !pattern.contains(['*', '?', '[']) {
                self.findings.error(node, &place, "include", format!("there is no file {pattern}"));
            }
            for file in files {
                let Some(included) = self.read(&file) else { continue };
                for (key, _) in included.entries().unwrap_or_default() {
                    if SECTIONS.contains(&key.text.as_str()) && !INCLUDED.contains(&key.text.as_str()) {
                        let message = "an included file holds tools only; this belongs in the manifest itself";
                        self.findings.error(&included, std::slice::from_ref(&key.text), "", message);
                    }
                }
                let known = |key: &str| INCLUDED.contains(&key) || !SECTIONS.contains(&key);
                self.findings.unknown_keys(&included.filtered(known), "", &INCLUDED);
                self.tools(&included, &folder(&file), defaults, manifest);
                self.sources(&included, &folder(&file), defaults, manifest);
            }
        }
    }
}

/// The folder at which relative paths of a file start.
pub(super) fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
