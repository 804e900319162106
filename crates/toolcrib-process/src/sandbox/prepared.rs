//! A sandbox, and its use for one program.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;
use rustix::thread::CapabilitySet;
use seccompiler::BpfProgram;
use tempfile::TempDir;
use tokio::process::Command;

use super::bubblewrap;
use super::carve::{Carved, Link, Location, is_writable, locate, real_grants, real_path};
use super::child::ChildSettings;
use super::landlock::{self, FileRules, HOLDS_SIGNALS, HOLDS_TCP, MOVES_FILES, Restrictions};
use super::limits;
use super::rules::{
    DEVICES, Files, Grant, KEPT_CAPABILITIES, KERNEL_PATHS, Level, Network, NotEnforced, Rules,
    SYSTEM_PATHS,
};
use super::seccomp::{self, Needs};
use super::support::{BWRAP, Namespaces, Support};

/// Rules for the programs of one entry, in the form in which they are applied.
pub struct Sandbox {
    rules: Rules,
    support: Support,
    level: Level,
    not_enforced: Vec<NotEnforced>,
    filters: Arc<[BpfProgram]>,
    /// The named paths, each with where it led when the rules were made.
    named: Vec<(PathBuf, Location)>,
    /// The grants of the last launch, with their ruleset.
    held: Mutex<Option<Held>>,
}

struct Held {
    carved: Carved,
    ruleset: Option<Arc<OwnedFd>>,
}

impl Sandbox {
    /// Prepares the rules for this machine. Reads folders, so it blocks.
    pub fn new(rules: Rules, support: &Support) -> Self {
        let namespaces = support.bubblewrap.is_ok();
        let is_only_named = rules.files.is_only_named();
        let needs = Needs {
            is_only_named,
            network: rules.network,
            has_namespaces: namespaces,
            has_process_bounds: namespaces || support.landlock >= HOLDS_SIGNALS,
        };
        let mut sandbox = Self {
            filters: support.filters(needs).into(),
            level: support.level(),
            named: rules
                .files
                .named()
                .map(|path| (path.clone(), locate(path)))
                .collect(),
            support: support.clone(),
            rules,
            not_enforced: Vec::new(),
            held: Mutex::default(),
        };
        sandbox.not_enforced = sandbox.find_not_enforced();
        sandbox
    }

    /// The strongest means that is in force.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What the rules demand and this machine cannot hold.
    pub fn not_enforced(&self) -> &[NotEnforced] {
        &self.not_enforced
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn find_not_enforced(&self) -> Vec<NotEnforced> {
        let (namespaces, landlock) = (self.support.bubblewrap.is_ok(), self.support.landlock);
        let is_only_named = self.rules.files.is_only_named();
        let mut missing = Vec::new();
        let mut add = |part, reason: String| missing.push(NotEnforced { part, reason });
        if !namespaces {
            if landlock < MOVES_FILES {
                if self.rules.files.is_only_named() || !self.rules.files.hidden().is_empty() {
                    add(
                        "files",
                        "the kernel has no Landlock that can hold files".into(),
                    );
                }
            } else if let [path, others @ ..] = &self.carve().exposed[..] {
                let more = match others.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let path = path.display();
                add(
                    "files",
                    format!(
                        "{path}{more} is in a folder that the program may write: give it a folder of its own"
                    ),
                );
            }
            if landlock < HOLDS_SIGNALS {
                add(
                    "signals",
                    "the kernel has no Landlock that can hold signals".into(),
                );
            }
        }
        if (namespaces || (is_only_named && landlock >= MOVES_FILES))
            && let Some(path) = self.replaceable()
        {
            let path = path.display();
            add(
                "files",
                format!("the program can put another file at {path}, which the service reads"),
            );
        }
        let has_filter = self.support.seccomp;
        let is_network_held = match self.rules.network {
            Network::All => true,
            Network::None => namespaces || has_filter,
            Network::Proxy(_) => landlock >= HOLDS_TCP && has_filter,
        };
        if !is_network_held {
            let reason = "the kernel has no Landlock that can hold TCP ports";
            add("network", reason.into());
        }
        if self.rules.limits.processes.is_some() && geteuid().is_root() {
            add(
                "processes",
                "the kernel does not count the processes of root".into(),
            );
        }
        missing
    }

    /// A link to a hidden file, or a folder with files of the service to come, that the program may replace or
    /// fill. No mount can cover either.
    fn replaceable(&self) -> Option<PathBuf> {
        let files = &self.rules.files;
        let hidden: Vec<Location> = files.hidden().iter().map(|path| locate(path)).collect();
        let is_hidden = |path: &Path| hidden.iter().any(|one| path.starts_with(&one.real));
        let may_write = |folder: &Path| {
            let is_granted = match files {
                Files::AllExcept { .. } => true,
                Files::Only { write, .. } => {
                    write.iter().any(|path| folder.starts_with(real_path(path)))
                }
            };
            is_granted && !is_hidden(folder) && is_writable(folder)
        };
        let links = hidden.iter().flat_map(|one| &one.links);
        let links = links.map(|link| link.path.clone());
        let watched = self.rules.watched.iter();
        let to_come = watched.map(|folder| real_path(folder).join("*"));
        let mut names = links.chain(to_come);
        names.find(|name| name.parent().is_some_and(may_write))
    }

    /// Where the named paths lead. Refuses one that leads elsewhere than before, by a link that a program may have
    /// made.
    fn locate_named(&self) -> io::Result<Vec<Location>> {
        let mut located = Vec::new();
        for (path, before) in &self.named {
            let now = locate(path);
            let is_new = |link: &Link| {
                let folder = link.path.parent();
                !before.links.contains(link) && folder.is_some_and(is_writable)
            };
            if now.real != before.real && now.links.iter().any(is_new) {
                let (path, real) = (path.display(), now.real.display());
                return Err(io::Error::other(format!(
                    "{path} leads to {real} now; restart the service if that is right"
                )));
            }
            located.push(now);
        }
        Ok(located)
    }

    /// What Landlock grants.
    fn carve(&self) -> Carved {
        let grant = |is_writable: bool| {
            move |path: &PathBuf| Grant {
                path: real_path(path),
                is_writable,
            }
        };
        let real = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().map(|path| real_path(path)).collect()
        };
        let hidden = real(self.rules.files.hidden());
        let kept = real_grants(self.rules.files.kept());
        match &self.rules.files {
            Files::AllExcept { workplaces, .. } if !hidden.is_empty() => {
                let workplaces = real(workplaces);
                let is_root = geteuid().is_root();
                let must_stay_open = |folder: &Path, _: &Grant| {
                    // Root may write nearly everywhere, so only where programs are meant to make files.
                    let is_meant = || workplaces.iter().any(|place| folder.starts_with(place));
                    is_writable(folder) && (!is_root || is_meant())
                };
                let everything = Grant {
                    path: "/".into(),
                    is_writable: true,
                };
                Carved::new(&[everything], &hidden, &kept, &must_stay_open)
            }
            Files::AllExcept { .. } => Carved::default(),
            Files::Only { read, write, .. } => {
                let system = SYSTEM_PATHS.iter().chain(KERNEL_PATHS).map(PathBuf::from);
                let read = system.chain(read.iter().cloned()).collect::<Vec<_>>();
                let roots: Vec<Grant> = read
                    .iter()
                    .map(grant(false))
                    .chain(write.iter().map(grant(true)))
                    .collect();
                Carved::new(&roots, &hidden, &kept, &|_, root| root.is_writable)
            }
        }
    }

    /// What one program is started with.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn launch(&self) -> io::Result<Launch> {
        let named = self.locate_named()?;
        match &self.support.bubblewrap {
            Ok(namespaces) => self.launch_in_namespaces(*namespaces, &named),
            Err(_) => self.launch_here(),
        }
    }

    fn launch_in_namespaces(
        &self,
        namespaces: Namespaces,
        named: &[Location],
    ) -> io::Result<Launch> {
        let is_only_named = self.rules.files.is_only_named();
        let filters: io::Result<Vec<OwnedFd>> = self.filters.iter().map(open_filter).collect();
        let (wrapper, inherited) = bubblewrap::arguments(&self.rules, named, namespaces, filters?);
        let ruleset = match is_only_named {
            true => self.ruleset(None)?,
            false => None,
        };
        Ok(Launch {
            wrapper,
            is_wrapped: true,
            program: PathBuf::new(),
            temporary: None,
            has_own_tmp: is_only_named,
            variables: Vec::new(),
            child: ChildSettings {
                ruleset,
                limits: limits::resource_limits(self.rules.limits),
                inherited,
                ..ChildSettings::default()
            },
        })
    }

    fn launch_here(&self) -> io::Result<Launch> {
        let is_only_named = self.rules.files.is_only_named();
        let temporary = is_only_named.then(make_temporary).transpose()?;
        Ok(Launch {
            wrapper: Vec::new(),
            is_wrapped: false,
            program: PathBuf::new(),
            child: ChildSettings {
                ruleset: self.ruleset(temporary.as_ref().map(TempDir::path))?,
                limits: limits::resource_limits(self.rules.limits),
                filters: self.filters.clone(),
                capabilities: geteuid()
                    .is_root()
                    .then(|| kept_capabilities(is_only_named)),
                inherited: Vec::new(),
            },
            has_own_tmp: is_only_named,
            variables: Vec::new(),
            temporary,
        })
    }

    /// The ruleset of Landlock. The last one is used again, if nothing has changed.
    fn ruleset(&self, temporary: Option<&Path>) -> io::Result<Option<Arc<OwnedFd>>> {
        let (version, has_namespaces) = (self.support.landlock, self.support.bubblewrap.is_ok());
        let is_only_named = self.rules.files.is_only_named();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.as_ref().filter(|held| held.carved.is_current())
            && temporary.is_none()
        {
            return Ok(held.ruleset.clone());
        }
        let holds_files = !has_namespaces && version >= MOVES_FILES;
        let carved = match holds_files {
            true => self.carve(),
            false => Carved::default(),
        };
        let files = FileRules {
            carved: &carved,
            devices: if is_only_named { DEVICES } else { &[] },
            temporary,
        };
        let restricts_files = holds_files && (is_only_named || !carved.listed.is_empty());
        let restrictions = Restrictions {
            files: restricts_files.then_some(files),
            network: (version >= HOLDS_TCP).then_some(self.rules.network),
            signals: version >= HOLDS_SIGNALS,
            abstract_sockets: is_only_named && version >= HOLDS_SIGNALS,
        };
        let ruleset = landlock::ruleset(&restrictions).map_err(io::Error::other)?;
        let ruleset = ruleset.map(Arc::new);
        *held = Some(Held {
            carved,
            ruleset: ruleset.clone(),
        });
        Ok(ruleset)
    }
}

/// A temporary folder. A container with a read-only root may have no `/tmp` to write in.
fn make_temporary() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("toolcrib-");
    let made = builder.tempdir();
    made.or_else(|error| builder.tempdir_in("/dev/shm").map_err(|_| error))
}

/// A pipe that holds a filter.
fn open_filter(filter: &BpfProgram) -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    // A filter has some kilobytes, and a pipe has room for 64.
    writer.write_all(&seccomp::to_bytes(filter))?;
    Ok(reader.into())
}

fn kept_capabilities(is_only_named: bool) -> CapabilitySet {
    let kept = KEPT_CAPABILITIES.iter().filter(|_| !is_only_named);
    kept.map(|(capability, _)| *capability).collect()
}

/// What one program is started with. The default restricts nothing.
#[derive(Default)]
pub struct Launch {
    /// The arguments of bubblewrap before the program.
    wrapper: Vec<OsString>,
    is_wrapped: bool,
    program: PathBuf,
    /// Removed when the program has ended.
    temporary: Option<TempDir>,
    has_own_tmp: bool,
    variables: Vec<(String, String)>,
    child: ChildSettings,
}

impl Launch {
    /// The command that starts this program. The caller adds arguments and environment.
    pub fn command(&mut self, program: &Path) -> Command {
        if !self.is_wrapped {
            return Command::new(program);
        }
        program.clone_into(&mut self.program);
        let mut command = Command::new(BWRAP);
        command.args(&self.wrapper).arg(program);
        command
    }

    /// Whether the command's own exit status stands for the program's.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.is_wrapped
    }

    /// Refuses a program that bubblewrap could not start, with the error that a start without it has.
    pub(crate) fn check_program(&self) -> io::Result<()> {
        if self.is_wrapped {
            rustix::fs::access(&self.program, rustix::fs::Access::EXEC_OK)?;
            if self.program.is_dir() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        Ok(())
    }

    /// Adds variables that replace those of the command.
    pub fn add_variables(&mut self, variables: Vec<(String, String)>) {
        self.variables.extend(variables);
    }

    /// Sets the variables that the sandbox decides.
    pub(crate) fn set_variables(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.has_own_tmp {
            let folder = self.temporary.as_ref().map(TempDir::path);
            command.env("TMPDIR", folder.unwrap_or(Path::new("/tmp")));
        }
    }

    /// Splits into what the child applies, and what lasts as long as the program.
    pub(crate) fn into_parts(self) -> (Option<ChildSettings>, Option<TempDir>) {
        let child = self.child;
        let is_empty = child.ruleset.is_none()
            && child.limits.is_empty()
            && child.filters.is_empty()
            && child.capabilities.is_none()
            && child.inherited.is_empty();
        ((!is_empty).then_some(child), self.temporary)
    }
}
