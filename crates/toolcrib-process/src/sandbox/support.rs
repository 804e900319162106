//! What this machine can do.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use seccompiler::BpfProgram;

use super::child::ChildSettings;
use super::landlock::Restrictions;
use super::rules::{Level, Network};
use super::{landlock, seccomp};
use crate::confine;

/// Only this file: profiles of AppArmor that permit namespaces name it.
pub(super) const BWRAP: &str = "/usr/bin/bwrap";

/// The means that this machine has, each tried once.
#[derive(Debug, Clone)]
pub struct Support {
    /// How bubblewrap is called; `Err`: why it cannot be used.
    pub(super) bubblewrap: Result<Namespaces, Arc<str>>,
    /// The version of Landlock's interface; 0: the kernel has none, or does not permit it.
    pub(super) landlock: i32,
    /// Whether filters for system calls can be made.
    pub(super) seccomp: bool,
}

/// How bubblewrap makes namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Namespaces {
    /// Without a user namespace, as root. Then the program keeps usual capabilities.
    pub(super) works_as_root: bool,
    /// With a user namespace.
    pub(super) works_as_user: bool,
}

/// The trial makes some namespaces and starts a program, which takes milliseconds.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

impl Support {
    /// Tries each means. It starts programs, so it blocks for some milliseconds.
    pub fn probe() -> Self {
        let needs = seccomp::Needs {
            is_only_named: true,
            network: Network::None,
            has_namespaces: false,
            has_process_bounds: true,
        };
        let filters = seccomp::filters(needs).ok();
        let seccomp = filters.is_some_and(|filters| {
            confine::can_apply(ChildSettings {
                filters: filters.into(),
                ..ChildSettings::default()
            })
        });
        Self {
            bubblewrap: probe_bubblewrap(),
            landlock: probe_landlock(),
            seccomp,
        }
    }

    /// The strongest means.
    pub fn level(&self) -> Level {
        match self {
            Self {
                bubblewrap: Ok(_), ..
            } => Level::Namespaces,
            Self { landlock: 1.., .. } => Level::Landlock,
            Self { seccomp: true, .. } => Level::Seccomp,
            Self { .. } => Level::None,
        }
    }

    pub(super) fn filters(&self, needs: seccomp::Needs) -> Vec<BpfProgram> {
        match self.seccomp {
            true => seccomp::filters(needs).unwrap_or_default(),
            false => Vec::new(),
        }
    }
}

fn probe_bubblewrap() -> Result<Namespaces, Arc<str>> {
    if !Path::new(BWRAP).is_file() {
        return Err(format!("{BWRAP} is not installed").into());
    }
    let as_user = try_bubblewrap(&["--unshare-user"]);
    let works_as_root = geteuid().is_root() && try_bubblewrap(&[]).is_ok();
    match as_user {
        Err(reason) if !works_as_root => Err(reason),
        as_user => Ok(Namespaces {
            works_as_root,
            works_as_user: as_user.is_ok(),
        }),
    }
}

fn try_bubblewrap(arguments: &[&str]) -> Result<(), Arc<str>> {
    let fixed = "--unshare-pid --unshare-net --dev-bind / / --proc /proc --tmpfs /tmp -- /proc/self/exe --version";
    let mut child = Command::new(BWRAP)
        .args(arguments)
        .args(fixed.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{BWRAP} cannot be started: {error}"))?;
    let began = Instant::now();
    while began.elapsed() < TRIAL_TIMEOUT {
        if let Ok(Some(status)) = child.try_wait() {
            if status.success() {
                return Ok(());
            }
            let mut text = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
            }
            let text = text.lines().next().unwrap_or("bwrap failed").to_owned();
            return Err(text.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("{BWRAP} did not end").into())
}

/// The version of Landlock, if a process can be restricted by it.
fn probe_landlock() -> i32 {
    let trial = Restrictions {
        network: Some(Network::None),
        ..Restrictions::default()
    };
    let version = landlock::version();
    // Without a rule for TCP the ruleset would be empty.
    let ruleset = match version >= landlock::HOLDS_TCP {
        true => landlock::ruleset(&trial).ok().flatten(),
        false => return version,
    };
    let works = ruleset.is_some_and(|ruleset| {
        confine::can_apply(ChildSettings {
            ruleset: Some(Arc::new(ruleset)),
            ..ChildSettings::default()
        })
    });
    if works { version } else { 0 }
}
