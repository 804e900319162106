//! `toolcrib pin`: stores the current definitions of the tools of MCP servers and of OpenAPI
//! documents at URLs. A tool whose definition changes is then quarantined until the same command
//! approves it. With `--dry-run` it shows what would be approved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;
use similar::TextDiff;

use super::Failure;
use super::failure::{describe_io_error, unless_stopped};
use super::manifest_file::ManifestArg;
use super::output::print_line;
use crate::app::{Error, venv_folder};
use crate::call::units::Count;
use crate::environment::Environment;
use crate::kinds::ProcessEnv;
use crate::ledger::ledger_file;
use crate::manifest::definition_change::DefinitionParts;
use crate::manifest::pins::{self, Pins, ServerPins, ToolPin};
use crate::manifest::{self, DeclaredSource, ProcessInput};
use crate::secrets::Redactor;
use crate::sources::{SourceFault, SourceKind, SourceListing};
use crate::text::sanitize;
use crate::text::suggest;

/// Arguments of `pin`.
#[derive(clap::Args)]
pub(super) struct PinArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Pin only this server or this API with a document at a URL. May be given several times. Other
    /// pins stay.
    #[arg(long, visible_alias = "source", value_name = "NAME")]
    server: Vec<String>,
    /// Write nothing. Show what would be approved, with the definitions of new and changed tools.
    /// Exit 1 if they differ from the pins.
    #[arg(long)]
    dry_run: bool,
}

/// Starts the servers, lists their tools, writes the file, and prints the differences from the file
/// before.
pub(super) async fn run(args: PinArgs, environment: &Environment) -> Result<(), Failure> {
    let path = args.manifest.required_path("")?;
    let natives = HashMap::new();
    let host = manifest::Host {
        natives: Some(&natives),
        ..manifest::Host::default()
    };
    let manifest = manifest::load_for_host(&path, &ProcessInput::new(environment), &host)
        .map_err(Error::Manifest)?;
    let venvs = venv_folder(&manifest.ledger);
    if let Some(file) = ledger_file(&manifest.ledger) {
        host.sandboxes.set_ledger(file, &venvs);
    }
    let sources = manifest.sources.into_iter();
    let servers: Vec<DeclaredSource> = sources
        .filter(|source| source.settings.can_be_pinned())
        .collect();
    check_server_names(&args.server, &servers)?;
    let is_chosen =
        |name: &str| args.server.is_empty() || args.server.iter().any(|chosen| chosen == name);
    let chosen: Vec<&DeclaredSource> = servers
        .iter()
        .filter(|server| is_chosen(server.name()))
        .collect();

    let redactor = Arc::new(Redactor::new(manifest.secrets.iter().map(String::as_str)));
    let mut process_env = ProcessEnv::new(redactor.clone(), environment);
    process_env.sandboxes = host.sandboxes;
    let listed = join_all(
        chosen
            .iter()
            .map(|server| list_server(server, &process_env)),
    );
    let listed = unless_stopped(listed, "toolcrib: stopped; nothing was written").await?;

    let before = manifest.pins.unwrap_or_default();
    let mut next = Pins {
        version: pins::FORMAT_VERSION,
        servers: before.servers.clone(),
    };
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    for (server, listed) in chosen.iter().zip(listed) {
        let name = server.name();
        match listed {
            Ok(listed) => {
                let now = ServerPins::new(&server.written_settings, &listed.tools);
                let definitions = args.dry_run.then_some(DefinitionView {
                    server,
                    listed: &listed,
                    redactor: &redactor,
                });
                let kind = server.settings.source_kind();
                lines.push(describe_difference(
                    (name, kind),
                    next.servers.get(name),
                    &now,
                    definitions,
                ));
                next.servers.insert(name.to_owned(), now);
            }
            Err(SourceFault(why)) => {
                let state = if next.servers.contains_key(name) {
                    "its pins stay"
                } else {
                    "it is not pinned"
                };
                let why = redactor.clean_and_redact(&why);
                faults.push(format!(
                    "server `{name}` could not be listed, {state}: {why}"
                ));
            }
        }
    }
    let removed: Vec<String> = next
        .servers
        .keys()
        .filter(|name| servers.iter().all(|server| server.name() != *name))
        .cloned()
        .collect();
    for name in removed {
        next.servers.remove(&name);
        lines.push(format!(
            "{name}: removed from the pins, since it is not in the manifest"
        ));
    }
    for server in servers
        .iter()
        .filter(|server| !is_chosen(server.name()) && !next.servers.contains_key(server.name()))
    {
        lines.push(format!(
            "{}: not pinned, so its tools are quarantined until it is pinned",
            server.name()
        ));
    }
    // Pins of an earlier version have no text, which is no difference to approve.
    let is_approved = pins::approve_the_same(&before.servers, &next.servers);
    let file = pins::pins_path(&path);
    lines.push(if next.servers == before.servers {
        format!("{}: nothing to write", file.display())
    } else if args.dry_run {
        format!("{}: not written, since this is a dry run", file.display())
    } else {
        write_pins(&file, &next)?
    });
    print_line(&lines.join("\n"));
    match faults.is_empty() {
        true if args.dry_run && !is_approved => Err(Failure::NegativeResult),
        true => Ok(()),
        false => Err(Failure::Failed(faults.join("\n"))),
    }
}

fn write_pins(file: &Path, pins: &Pins) -> Result<String, Failure> {
    let failed = |error: io::Error| {
        Failure::Failed(format!(
            "toolcrib: {}: {}",
            file.display(),
            describe_io_error(&error)
        ))
    };
    let text = serde_json::to_string_pretty(pins).map_err(|error| failed(error.into()))? + "\n";
    write_atomically(file, &text).map_err(failed)?;
    Ok(format!("{}: written", file.display()))
}

/// Checks that every named server exists.
fn check_server_names(named: &[String], servers: &[DeclaredSource]) -> Result<(), Failure> {
    let names: Vec<&str> = servers.iter().map(DeclaredSource::name).collect();
    let Some(name) = named.iter().find(|name| !names.contains(&name.as_str())) else {
        return Ok(());
    };
    let hint = match suggest::closest_name(name, names.iter().copied(), suggest::MIN_HINT_RATIO) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => {
            "the manifest has no mcp_servers, and no document of openapi at a URL".into()
        }
        None => format!("there are {}", names.join(", ")),
    };
    Err(Failure::Usage(format!(
        "--server {name}: no such server; {hint}"
    )))
}

async fn list_server(
    server: &DeclaredSource,
    process_env: &ProcessEnv,
) -> Result<SourceListing, SourceFault> {
    let name = server.name().to_owned();
    let source = server.settings.build(process_env);
    let listed = source
        .list(&move |doing| tracing::info!(source = name, doing, "a source is loading"))
        .await?;
    for warning in &listed.warnings {
        let warning = process_env.redactor.clean_and_redact(warning);
        tracing::warn!(source = server.name(), "{warning}");
    }
    Ok(listed)
}

/// The differences from the pins, one line for each tool. With `definitions`, also the current
/// definitions.
fn describe_difference(
    (name, kind): (&str, SourceKind),
    before: Option<&ServerPins>,
    now: &ServerPins,
    definitions: Option<DefinitionView<'_>>,
) -> String {
    let empty = BTreeMap::new();
    let describe = |tool: &str, old: Option<&DefinitionParts>, new: Option<&DefinitionParts>| {
        let describe_one = |view: &DefinitionView<'_>| match old.zip(new) {
            Some((old, new)) => view.describe_change(old, new),
            None => view.describe_tool(tool),
        };
        let lines = definitions.iter().flat_map(describe_one);
        lines.collect::<Vec<String>>()
    };
    let old_pins: &BTreeMap<String, ToolPin> = before.map_or(&empty, |before| &before.tools);
    let mut lines = Vec::new();
    for (tool, pin) in &now.tools {
        let old = old_pins.get(tool);
        match old {
            None => lines.push(format!("  new      {}", escape_name(tool))),
            Some(old) if old.sha256 == pin.sha256 && !old.is_same_as(pin) => {
                lines.push(format!(
                    "  changed  {}: the text of the pin, which is not what its hash approves",
                    escape_name(tool)
                ));
            }
            Some(old) if old.sha256 != pin.sha256 => {
                lines.push(format!(
                    "  changed  {}: {}",
                    escape_name(tool),
                    old.changed_parts(pin).join(", ")
                ));
            }
            Some(_) => continue,
        }
        let old_definition = old.and_then(|old| old.definition.as_ref());
        lines.extend(describe(tool, old_definition, pin.definition.as_ref()));
    }
    let removed = old_pins
        .keys()
        .filter(|tool| !now.tools.contains_key(*tool));
    lines.extend(removed.map(|tool| format!("  gone     {}", escape_name(tool))));
    let count = Count(now.tools.len(), "tool");
    let reach_change = match kind {
        SourceKind::Openapi => "its document or base URL has changed since it was pinned",
        _ => "its command, environment or URL has changed since it was pinned",
    };
    let summary = match before {
        None => "pinned for the first time",
        Some(before) if before.reach != now.reach => reach_change,
        Some(_) if lines.is_empty() => "same as pinned",
        Some(_) => "changed since it was pinned",
    };
    let reach = definitions
        .iter()
        .filter(|_| before.is_none_or(|before| before.reach != now.reach))
        .flat_map(DefinitionView::describe_reach);
    let first = std::iter::once(format!("{name}: {count}, {summary}")).chain(reach);
    first.chain(lines).collect::<Vec<String>>().join("\n")
}

/// A tool's own name for output in one line. The server chose the name, so it is not trusted.
fn escape_name(name: &str) -> String {
    sanitize::escape_invisible(name).replace('\n', "\\n")
}

/// The definitions to approve, for a person who reads them in a terminal. All characters are
/// visible, and no line can be mistaken for one of our own.
struct DefinitionView<'a> {
    server: &'a DeclaredSource,
    listed: &'a SourceListing,
    redactor: &'a Redactor,
}

impl DefinitionView<'_> {
    /// How the server is reached, as written in the manifest.
    fn describe_reach(&self) -> Vec<String> {
        let part = |part: &&str| {
            Some((
                (*part).to_owned(),
                self.server.written_settings.get(*part)?.clone(),
            ))
        };
        self.format_json(
            "reached by",
            Value::Object(pins::REACH_KEYS.iter().filter_map(part).collect()),
        )
    }

    /// The definition of a tool that models and clients would see.
    fn describe_tool(&self, name: &str) -> Vec<String> {
        let Some(tool) = self.listed.tools.iter().find(|tool| tool.name == name) else {
            return Vec::new();
        };
        let mut lines = self.format_text("description", &tool.description);
        lines.extend(self.format_json("input schema", tool.input_schema.clone()));
        lines.extend(
            tool.output_schema
                .clone()
                .into_iter()
                .flat_map(|schema| self.format_json("output schema", schema)),
        );
        if !tool.annotations.is_empty() {
            lines.extend(self.format_json("annotations", Value::Object(tool.annotations.clone())));
        }
        lines
    }

    /// The parts of a definition that differ, line by line.
    fn describe_change(&self, old: &DefinitionParts, new: &DefinitionParts) -> Vec<String> {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = names
            .into_iter()
            .filter(|name| old.get(*name) != new.get(*name));
        changed
            .flat_map(|name| {
                let (old, new) = (self.part_text(old.get(name)), self.part_text(new.get(name)));
                let difference = TextDiff::from_lines(&old, &new);
                let hunks = difference.unified_diff().context_radius(3).to_string();
                let lines = hunks.lines().filter(|line| !line.starts_with("@@"));
                let lines: Vec<String> = lines.map(|line| format!("      | {line}")).collect();
                std::iter::once(format!("    {}", escape_name(name))).chain(lines)
            })
            .collect()
    }

    /// A part of a definition as lines that a terminal shows as they are.
    fn part_text(&self, part: Option<&Value>) -> String {
        let text = match part {
            None => return String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        sanitize::escape_invisible(&self.redactor.redact_text(&text)) + "\n"
    }

    fn format_json(&self, title: &str, mut value: Value) -> Vec<String> {
        self.redactor.redact_json(&mut value);
        self.format_text(
            title,
            &serde_json::to_string_pretty(&value).unwrap_or_default(),
        )
    }

    fn format_text(&self, title: &str, text: &str) -> Vec<String> {
        let text = sanitize::escape_invisible(&self.redactor.redact_text(text));
        let lines = text.split('\n').map(|line| format!("      | {line}"));
        std::iter::once(format!("    {title}"))
            .chain(lines)
            .collect()
    }
}

/// Writes the file completely or not at all. A service that reads it meanwhile gets the old or the
/// new content.
fn write_atomically(file: &Path, text: &str) -> io::Result<()> {
    // The target of a link is replaced, not the link.
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let temporary = folder.join(format!(
        ".{}.{}",
        name.to_string_lossy(),
        std::process::id()
    ));
    let written = (|| {
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        // All users may read it, above all the service. The umask of this process is that of tools'
        // programs.
        let public = || Permissions::from_mode(0o644);
        out.set_permissions(
            std::fs::metadata(&file).map_or_else(|_| public(), |before| before.permissions()),
        )?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&temporary, &file)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
