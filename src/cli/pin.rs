//! `toolcrib pin`: stores the current definitions of the tools of MCP servers. A tool whose definition changes is
//! then quarantined until the same command approves it. With `--dry-run` it shows what would be approved.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;

use super::arguments::{MANIFEST, ManifestArg};
use super::{Failure, print};
use crate::app::{self, Error};
use crate::call::units::Count;
use crate::environment::Environment;
use crate::manifest::{self, DeclaredSource, Manifest, Process};
use crate::pins::{self, Pins, ServerPins, ToolPin};
use crate::sanitize;
use crate::secrets::Redactor;
use crate::suggest;
use crate::tools::{Listed, ProcessEnv, SourceFault};

/// Arguments of `pin`.
#[derive(clap::Args)]
pub(super) struct PinArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Only this server, and again for more of them; the others stay as they are pinned.
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Write nothing: show what would be approved, with the words of what is new and changed, and exit 1 if that
    /// differs from what is pinned.
    #[arg(long)]
    dry_run: bool,
}

/// Starts the servers, lists their tools, writes the file, and prints the differences from the file before.
pub(super) async fn pin(args: PinArgs, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = args.manifest.path() else {
        return Err(Failure::Usage(format!("there is no manifest: name one with --manifest, or write {MANIFEST}")));
    };
    let Manifest { sources, pins, secrets, .. } =
        manifest::load(&path, &Process::new(environment), &HashMap::new()).map_err(Error::Manifest)?;
    let servers: Vec<DeclaredSource> = sources.into_iter().filter(|source| source.settings.is_foreign()).collect();
    known(&args.server, &servers)?;
    let is_chosen = |name: &str| args.server.is_empty() || args.server.iter().any(|chosen| chosen == name);
    let chosen: Vec<&DeclaredSource> = servers.iter().filter(|server| is_chosen(server.name())).collect();

    let redactor = Arc::new(Redactor::new(secrets.iter().map(String::as_str)));
    let surroundings = ProcessEnv::new(redactor.clone(), environment);
    let listed = join_all(chosen.iter().map(|server| list(server, &surroundings)));
    let listed = tokio::select! {
        listed = listed => listed,
        stopped = app::stopped() => {
            stopped?;
            return Err(Failure::Failed("toolcrib: stopped; nothing was written".into()));
        }
    };

    let before = pins.unwrap_or_default();
    let mut next = Pins { version: pins::VERSION, servers: before.servers.clone() };
    let (mut said, mut faults) = (Vec::new(), Vec::new());
    for (server, listed) in chosen.iter().zip(listed) {
        let name = server.name();
        match listed {
            Ok(listed) => {
                let now = ServerPins::of(&server.written, &listed.tools);
                let shown = args.dry_run.then_some(Shown { server, listed: &listed, redactor: &redactor });
                said.push(difference(name, next.servers.get(name), &now, shown));
                next.servers.insert(name.to_owned(), now);
            }
            Err(SourceFault(why)) => {
                let kept =
                    if next.servers.contains_key(name) { "it stays as it was pinned" } else { "it is not pinned" };
                let why = redactor.text(&sanitize::text(&why)).into_owned();
                faults.push(format!("server `{name}` could not be listed, {kept}: {why}"));
            }
        }
    }
    let gone: Vec<String> =
        next.servers.keys().filter(|name| servers.iter().all(|server| server.name() != *name)).cloned().collect();
    for name in gone {
        next.servers.remove(&name);
        said.push(format!("{name}: gone from the manifest, and from the pins"));
    }
    for server in servers.iter().filter(|server| !is_chosen(server.name()) && !next.servers.contains_key(server.name()))
    {
        said.push(format!("{}: not pinned, so its tools are stopped until it is", server.name()));
    }
    let file = pins::file_of(&path);
    let is_same = next.servers == before.servers;
    said.push(if is_same {
        format!("{}: nothing to write", file.display())
    } else if args.dry_run {
        format!("{}: not written, since this is a dry run", file.display())
    } else {
        let failed = |error| Failure::Failed(format!("toolcrib: {}: {error}", file.display()));
        let text = serde_json::to_string_pretty(&next).map_err(|error| failed(error.into()))? + "\n";
        write(&file, &text).map_err(failed)?;
        format!("{}: written", file.display())
    });
    print(&said.join("\n"));
    match faults.is_empty() {
        true if args.dry_run && !is_same => Err(Failure::No),
        true => Ok(()),
        false => Err(Failure::Failed(faults.join("\n"))),
    }
}

/// Checks that every named server exists.
fn known(named: &[String], servers: &[DeclaredSource]) -> Result<(), Failure> {
    let there: Vec<&str> = servers.iter().map(DeclaredSource::name).collect();
    let Some(name) = named.iter().find(|name| !there.contains(&name.as_str())) else { return Ok(()) };
    let hint = match suggest::closest(name, there.iter().copied(), suggest::HINT) {
        Some(near) => format!("did you mean {near}?"),
        None if there.is_empty() => "the manifest has no mcp_servers".into(),
        None => format!("there are {}", there.join(", ")),
    };
    Err(Failure::Usage(format!("--server {name}: no such server; {hint}")))
}

async fn list(server: &DeclaredSource, surroundings: &ProcessEnv) -> Result<Listed, SourceFault> {
    let name = server.name().to_owned();
    let source = server.settings.build(surroundings);
    let listed = source.list(&move |doing| tracing::info!(source = name, doing, "a source is loading")).await?;
    for warning in &listed.warnings {
        let warning = surroundings.redactor.text(&sanitize::text(warning)).into_owned();
        tracing::warn!(source = server.name(), "{warning}");
    }
    Ok(listed)
}

/// The differences from the pins, one line for each tool. With `shown`, also the current definitions.
fn difference(name: &str, before: Option<&ServerPins>, now: &ServerPins, shown: Option<Shown<'_>>) -> String {
    let empty = BTreeMap::new();
    let words = |tool: &str| shown.iter().flat_map(|shown| shown.tool(tool)).collect::<Vec<String>>();
    let old: &BTreeMap<String, ToolPin> = before.map_or(&empty, |before| &before.tools);
    let mut lines = Vec::new();
    for (tool, pin) in &now.tools {
        match old.get(tool) {
            None => lines.push(format!("  new      {}", in_line(tool))),
            Some(was) if was.sha256 != pin.sha256 => {
                lines.push(format!("  changed  {}: {}", in_line(tool), was.changed(pin).join(", ")));
            }
            Some(_) => continue,
        }
        lines.extend(words(tool));
    }
    let gone = old.keys().filter(|tool| !now.tools.contains_key(*tool));
    lines.extend(gone.map(|tool| format!("  gone     {}", in_line(tool))));
    let count = Count(now.tools.len(), "tool");
    let how = match before {
        None => "pinned for the first time",
        Some(before) if before.reach != now.reach => "reached in another way than when it was pinned",
        Some(_) if lines.is_empty() => "as it was pinned",
        Some(_) => "other than it was pinned",
    };
    let reach = shown.iter().filter(|_| before.is_none_or(|before| before.reach != now.reach)).flat_map(Shown::reach);
    let first = std::iter::once(format!("{name}: {count}, {how}")).chain(reach);
    first.chain(lines).collect::<Vec<String>>().join("\n")
}

/// A tool's own name for output in one line. The server chose the name, so it is not trusted.
fn in_line(name: &str) -> String {
    sanitize::visible(name).replace('\n', "\\n")
}

/// The definitions to approve, for a person who reads them in a terminal. All characters are visible, and no line can
/// be mistaken for one of our own.
struct Shown<'a> {
    server: &'a DeclaredSource,
    listed: &'a Listed,
    redactor: &'a Redactor,
}

impl Shown<'_> {
    /// How the server is reached, as written in the manifest.
    fn reach(&self) -> Vec<String> {
        let part = |part: &&str| Some(((*part).to_owned(), self.server.written.get(*part)?.clone()));
        self.json("reached by", Value::Object(pins::REACH.iter().filter_map(part).collect()))
    }

    /// The definition of a tool that models and clients would see.
    fn tool(&self, name: &str) -> Vec<String> {
        let Some(offer) = self.listed.tools.iter().find(|offer| offer.name == name) else { return Vec::new() };
        let mut lines = self.text("description", &offer.description);
        lines.extend(self.json("input schema", offer.input_schema.clone()));
        lines.extend(offer.output_schema.clone().into_iter().flat_map(|schema| self.json("output schema", schema)));
        if !offer.annotations.is_empty() {
            lines.extend(self.json("annotations", Value::Object(offer.annotations.clone())));
        }
        lines
    }

    fn json(&self, title: &str, mut value: Value) -> Vec<String> {
        self.redactor.progress(&mut value);
        self.text(title, &serde_json::to_string_pretty(&value).unwrap_or_default())
    }

    fn text(&self, title: &str, text: &str) -> Vec<String> {
        let text = sanitize::visible(&self.redactor.text(text));
        let lines = text.split('\n').map(|line| format!("      | {line}"));
        std::iter::once(format!("    {title}")).chain(lines).collect()
    }
}

/// Writes the file completely or not at all. A service that reads it meanwhile gets the old or the new content.
fn write(file: &Path, text: &str) -> io::Result<()> {
    // The target of a link is replaced, not the link.
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let draft = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).open(&draft)?;
        // All users may read it, above all the service. The umask of this process is that of tools' programs.
        let public = || Permissions::from_mode(0o644);
        out.set_permissions(std::fs::metadata(&file).map_or_else(|_| public(), |before| before.permissions()))?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&draft, &file)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}
