//! `toolcrib sandbox`: runs a command as an entry's programs run, or shows what they may do.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use toolcrib_process::sandbox::{Files, Limits, Network, Sandbox};
use toolcrib_process::{OrphanReaper, ProcessMarker, ProcessTree, which};

use super::Failure;
use super::manifest_file::ManifestArg;
use super::output::print_line;
use crate::app::{self, venv_folder};
use crate::environment::Environment;
use crate::kinds::sandbox::{
    EntrySandbox, NetworkSetting, OwnPaths, SandboxDefaults, SandboxMap, SandboxSetting, Sandboxes,
    program_paths,
};
use crate::ledger::ledger_file;
use crate::manifest;

/// Arguments of `sandbox`.
#[derive(clap::Args)]
pub(super) struct SandboxArgs {
    /// The tool, Python module or MCP server of the manifest. Without it, only what the options name.
    entry: Option<String>,
    /// A file or folder that the command may read.
    #[arg(long, value_name = "PATH", conflicts_with = "entry")]
    read: Vec<PathBuf>,
    /// A file or folder that the command may read and change.
    #[arg(long, value_name = "PATH", conflicts_with = "entry")]
    write: Vec<PathBuf>,
    /// A host that the command may connect to; `*` for all.
    #[arg(long, value_name = "HOST", conflicts_with = "entry")]
    network: Vec<String>,
    /// Print the rules instead of running a command.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    manifest: ManifestArg,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command, and ends with its exit status.
pub(super) async fn run(args: SandboxArgs, environment: &Environment) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    let shared = Sandboxes::default();
    let sandbox = match &args.entry {
        Some(name) => find_entry(name, &args, environment, &shared)?,
        None if args.command.is_empty() => {
            return usage("name an entry of the manifest, or a command after `--`");
        }
        None => SandboxDefaults {
            shared,
            ..SandboxDefaults::default()
        }
        .entry(
            Some(named_setting(&args)),
            &current_folder(),
            own_paths("command line", &args.command, environment),
        ),
    };
    if args.explain {
        explain(&sandbox);
        return Ok(());
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return usage("write the command after `--`, or --explain");
    };
    let program = find_program(Path::new(program), environment);
    let mut launch = sandbox.launch().map_err(Failure::Failed)?;
    let mut command = launch.command(&program);
    command
        .args(arguments)
        .current_dir(&sandbox.own().workdir)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    let marker = ProcessMarker::new([("TOOLCRIB_SANDBOX", uuid::Uuid::now_v7().to_string())]);
    let reaper = OrphanReaper::default();
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("cannot start {}: {error}", program.display()))
    };
    let mut tree = ProcessTree::spawn(&mut command, marker, &reaper, launch).map_err(failed)?;
    let status = tree.wait().await.map_err(failed)?;
    drop(tree);
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Exit(u8::try_from(code).unwrap_or(1))),
        None => Err(Failure::Failed(format!("it ended by {status}"))),
    }
}

fn named_setting(args: &SandboxArgs) -> SandboxSetting {
    let network = match args.network.iter().any(|host| host == "*") {
        true => NetworkSetting::All(true),
        false if args.network.is_empty() => NetworkSetting::All(false),
        false => NetworkSetting::Hosts(args.network.clone()),
    };
    SandboxSetting::Only(Box::new(SandboxMap {
        network,
        read: args.read.clone(),
        write: args.write.clone(),
        ..SandboxMap::default()
    }))
}

fn own_paths(entry: &str, command: &[OsString], environment: &Environment) -> OwnPaths {
    let programs = command.first().map(Path::new);
    let programs = programs.map(|program| find_program(program, environment));
    OwnPaths {
        entry: entry.into(),
        workdir: current_folder(),
        needed: programs
            .iter()
            .flat_map(|program| program_paths(program))
            .collect(),
        written: Vec::new(),
    }
}

fn current_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

fn find_program(program: &Path, environment: &Environment) -> PathBuf {
    let path = environment.get_text("PATH").unwrap_or_default();
    let found = (program.components().count() == 1).then(|| which(path.as_ref(), program));
    found.flatten().unwrap_or_else(|| program.to_owned())
}

/// The sandbox of the entry with this name.
fn find_entry(
    name: &str,
    args: &SandboxArgs,
    environment: &Environment,
    shared: &Sandboxes,
) -> Result<EntrySandbox, Failure> {
    let path = args.manifest.required_path("")?;
    let host = manifest::Host {
        is_standalone: true,
        sandboxes: shared.clone(),
        ..manifest::Host::default()
    };
    let input = manifest::ProcessInput::new(environment).without_secrets();
    let content = manifest::load_for_host(&path, &input, &host).map_err(app::Error::Manifest)?;
    if let Some(file) = ledger_file(&content.ledger) {
        shared.set_ledger(file, &venv_folder(&content.ledger));
    }
    let tool = content.tools.iter().find(|tool| tool.name() == name);
    let of_tool = tool.and_then(|tool| tool.runner.sandbox());
    if let Some(sandbox) = of_tool {
        let (setting, own) = (sandbox.setting().clone(), sandbox.own().clone());
        return Ok(EntrySandbox::new(setting, own, shared.clone()));
    }
    let mut sources = content.sources.iter();
    let source = sources.find(|source| source.name() == name);
    let of_source = source.and_then(|source| source.settings.program());
    let Some((program, setting)) = of_source else {
        let message = match tool.is_some() || source.is_some() {
            true => format!("`{name}` starts no program"),
            false => format!("the manifest has no entry `{name}`"),
        };
        return Err(Failure::Failed(message));
    };
    let program = find_program(program, environment);
    let own = OwnPaths {
        entry: name.to_owned(),
        workdir: source
            .and_then(|source| source.settings.workdir())
            .map_or_else(current_folder, PathBuf::from),
        needed: program_paths(&program),
        written: Vec::new(),
    };
    Ok(EntrySandbox::new(setting.clone(), own, shared.clone()))
}

/// Prints what the programs of the entry may do.
fn explain(sandbox: &EntrySandbox) {
    let report = sandbox.report();
    let asked = serde_json::to_string(&report.asked).unwrap_or_default();
    print_line(&format!("sandbox       {asked}"));
    print_line(&format!("in force      {}", report.in_force));
    let Some(prepared) = sandbox.prepare() else {
        return;
    };
    for (title, lines) in describe(&prepared) {
        let mut title = title;
        for line in lines {
            print_line(&format!("{title:<13} {line}"));
            title = "";
        }
    }
}

fn describe(sandbox: &Sandbox) -> Vec<(&'static str, Vec<String>)> {
    let rules = sandbox.rules();
    let show = |paths: &[PathBuf]| -> Vec<String> {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    let mut lines = Vec::new();
    let (hidden, kept) = match &rules.files {
        Files::AllExcept { hidden, kept, .. } => {
            lines.push(("files", vec!["all, except the hidden ones".to_owned()]));
            (hidden, kept)
        }
        Files::Only {
            read,
            write,
            hidden,
            kept,
        } => {
            lines.push((
                "read",
                vec!["programs and libraries of the system".to_owned()],
            ));
            lines.push(("", show(read)));
            lines.push(("write", vec!["a temporary folder of its own".to_owned()]));
            lines.push(("", show(write)));
            (hidden, kept)
        }
    };
    let kept: Vec<PathBuf> = kept.iter().map(|kept| kept.path.clone()).collect();
    lines.push(("hidden", show(hidden)));
    lines.push(("not hidden", show(&kept)));
    lines.push((
        "network",
        vec![match rules.network {
            Network::All => "all".to_owned(),
            Network::None => "none".to_owned(),
            Network::Proxy(_) => "the named hosts, through a proxy".to_owned(),
        }],
    ));
    lines.push(("limits", describe_limits(rules.limits)));
    let missing = sandbox.not_enforced().iter();
    let missing = missing.map(|missing| format!("{}: {}", missing.part, missing.reason));
    lines.push(("not enforced", missing.collect()));
    lines
}

fn describe_limits(limits: Limits) -> Vec<String> {
    [
        ("bytes of memory for each process", limits.memory),
        (
            "seconds of processor time for each process",
            limits.cpu_seconds,
        ),
        ("processes and threads", limits.processes),
        ("open files for each process", limits.files),
        ("bytes for each file", limits.disk),
    ]
    .into_iter()
    .filter_map(|(what, value)| Some(format!("{} {what}", value?)))
    .collect()
}
