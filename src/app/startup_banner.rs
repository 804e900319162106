//! The startup banner: address, tools, callers, and open access.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use bytesize::ByteSize;

use crate::call::units::Count;
use crate::call::{Caller, Kind, Origin};
use crate::catalog::registry::Registry;
use crate::kinds::sandbox::SandboxReport;
use crate::manifest;
use crate::manifest::ServerSettings;
use crate::sources::live::{SourceState, SourceView};

/// The output for a person.
pub(crate) type HumanOutput = Box<dyn io::Write + Send + Sync>;

/// The facts of the banner, each in its printed form.
pub(crate) struct StartupBanner {
    address: SocketAddr,
    tools: usize,
    tools_off: usize,
    tools_by_kind: String,
    registered: usize,
    sources: Vec<String>,
    ledger: String,
    /// `None`: no tool starts a program.
    sandbox: Option<String>,
    callers: String,
    open: &'static str,
    hosts: String,
    origins: String,
    limits: String,
    demo: bool,
}

impl StartupBanner {
    pub(crate) fn new(
        address: SocketAddr,
        registry: &Registry,
        sources: &[SourceView],
        settings: &ServerSettings,
        demo: bool,
    ) -> Self {
        // As the operator, who sees every tool.
        let catalog = registry.catalog();
        let tools = catalog.tools_for(&Caller::anonymous());
        let of_kind = |kind: Kind| tools.iter().filter(|entry| entry.kind == kind).count();
        let kinds = Kind::ALL
            .iter()
            .copied()
            .map(|kind| (of_kind(kind), kind))
            .filter(|(count, _)| *count > 0);
        let tools_by_kind = join_or(
            kinds.map(|(count, kind)| format!("{count} {}", kind.as_str())),
            "none",
        );
        let ledger = &registry.shared().ledger;
        let durability = if ledger.is_strict() {
            "every answer waits for its commit"
        } else {
            "tiered durability"
        };
        let named = |caller: &Caller| {
            format!(
                "{}{}",
                caller.name,
                if caller.admin { " (admin)" } else { "" }
            )
        };
        let has_no_callers = catalog.callers().is_empty();
        Self {
            address,
            tools: tools.len(),
            tools_off: tools.iter().filter(|entry| !entry.is_enabled()).count(),
            tools_by_kind,
            registered: catalog.count_by_origin(Origin::Registered),
            sources: sources.iter().map(describe_source).collect(),
            ledger: format!("{}, {durability}", ledger.describe()),
            sandbox: describe_sandboxes(tools.iter().filter_map(|entry| entry.sandbox())),
            callers: join_or(catalog.callers().iter().map(named), "none"),
            open: match (has_no_callers, manifest::is_loopback(&address)) {
                (true, true) => "everything, to every client on this machine: there are no callers",
                (true, false) => {
                    "everything, to every client that can connect: there are no callers"
                }
                (false, _) => "/livez, /readyz, /openapi.json and /docs; all else needs a key",
            },
            hosts: join_or(settings.allowed_hosts.iter().cloned(), "this address only"),
            origins: join_or(
                settings.allowed_origins.iter().cloned(),
                "this service's own only",
            ),
            limits: format!(
                "{} at once, bodies up to {}, {} to drain",
                Count(settings.max_in_flight, "call"),
                ByteSize(settings.max_body as u64),
                humantime::format_duration(settings.drain)
            ),
            demo,
        }
    }

    /// Prints the banner. The first line goes to standard output, for scripts. The other facts are
    /// a block of text for a person, or one event.
    pub(crate) fn print(&self, output: Option<HumanOutput>) {
        let mut out = io::stdout();
        let _ = writeln!(out, "listening on http://{}", self.address);
        let _ = out.flush();
        match output {
            Some(mut output) if tracing::enabled!(tracing::Level::INFO) => {
                // A single write, so that no other output comes between the lines.
                let _ = output.write_all(self.to_string().as_bytes());
            }
            _ => self.log_event(),
        }
    }

    fn log_event(&self) {
        tracing::info!(
            address = %self.address,
            version = env!("CARGO_PKG_VERSION"),
            tools = self.tools,
            tools_off = self.tools_off,
            tools_by_kind = self.tools_by_kind,
            registered = self.registered,
            sources = (!self.sources.is_empty()).then(|| self.sources.join("; ")),
            ledger = self.ledger,
            sandbox = self.sandbox,
            callers = self.callers,
            open = self.open,
            hosts = self.hosts,
            origins = self.origins,
            limits = self.limits,
            console = format!("{}/", self.url()),
            docs = format!("{}/docs", self.url()),
            metrics = format!("{}/metrics", self.url()),
            r#try = self.demo.then(|| self.example_command()),
            "ready"
        );
    }

    /// The URL for a client on this machine.
    fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        format!("http://{address}")
    }

    fn example_command(&self) -> String {
        let url = self.url();
        format!(
            "curl -s {url}/tools/calculator/invoke -H 'content-type: application/json' \
             -d '{{\"arguments\": {{\"expression\": \"6*7\"}}}}'"
        )
    }
}

impl Display for StartupBanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url();
        writeln!(f, "Toolcrib {}", env!("CARGO_PKG_VERSION"))?;
        let disabled_note = if self.tools_off > 0 {
            format!("; {} disabled", self.tools_off)
        } else {
            String::new()
        };
        let registered_note = match self.registered {
            0 => String::new(),
            count => format!("; {count} registered at run time"),
        };
        writeln!(
            f,
            "  tools    {} ({}{registered_note}{disabled_note})",
            self.tools, self.tools_by_kind
        )?;
        for (at, source) in self.sources.iter().enumerate() {
            writeln!(f, "  {:<8} {source}", if at == 0 { "sources" } else { "" })?;
        }
        writeln!(f, "  ledger   {}", self.ledger)?;
        if let Some(sandbox) = &self.sandbox {
            writeln!(f, "  sandbox  {sandbox}")?;
        }
        writeln!(f, "  callers  {}", self.callers)?;
        writeln!(f, "  open     {}", self.open)?;
        writeln!(f, "  hosts    {}; origins: {}", self.hosts, self.origins)?;
        writeln!(f, "  limits   {}", self.limits)?;
        writeln!(f, "  console  {url}/")?;
        writeln!(f, "  see      {url}/docs and {url}/metrics")?;
        if self.demo {
            let intro = "No manifest: serving the built-in demo tools. Try";
            writeln!(f, "\n{intro}\n\n  {}\n", self.example_command())?;
        }
        Ok(())
    }
}

/// The means that hold the programs of tools, and what they do not hold.
fn describe_sandboxes(reports: impl Iterator<Item = SandboxReport>) -> Option<String> {
    let (mut means, mut missing) = (BTreeMap::new(), BTreeSet::new());
    for report in reports {
        *means.entry(report.in_force).or_insert(0) += 1;
        missing.extend(report.not_enforced);
    }
    let means = means
        .iter()
        .map(|(means, tools)| format!("{means} for {}", Count(*tools, "tool")));
    let means = join_or(means, "");
    let missing: Vec<&str> = missing.into_iter().collect();
    match missing.is_empty() {
        _ if means.is_empty() => None,
        true => Some(means),
        false => Some(format!("{means}; not enforced: {}", missing.join(", "))),
    }
}

/// A source with the number of its tools, or the reason why it has none.
fn describe_source(source: &SourceView) -> String {
    let (name, kind) = (&source.name, source.kind.as_str());
    match (source.state, &source.fault, &source.doing) {
        (SourceState::Up, ..) => format!("{name} ({kind}): {}", Count(source.tools, "tool")),
        (SourceState::Starting, _, Some(doing)) => {
            format!("{name} ({kind}): still loading: {doing}")
        }
        (SourceState::Starting, ..) => format!("{name} ({kind}): still loading"),
        (state, Some(fault), _) => format!("{name} ({kind}): {}: {fault}", state.as_str()),
        (state, None, _) => format!("{name} ({kind}): {}", state.as_str()),
    }
}

fn join_or(texts: impl Iterator<Item = String>, or: &str) -> String {
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        or.to_owned()
    } else {
        texts.join(", ")
    }
}
