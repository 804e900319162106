//! What a program may do, as plain data.

use std::path::PathBuf;

use rustix::thread::CapabilitySet;

/// What a program may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The files that it may use.
    pub files: Files,
    /// The network that it may use.
    pub network: Network,
    /// Bounds of its resources.
    pub limits: Limits,
    /// Folders from which the service reads files that may not be there yet, such as those that an `include`
    /// pattern names.
    pub watched: Vec<PathBuf>,
}

/// A file or folder, with all that is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The path.
    pub path: PathBuf,
    /// Whether the program may change it.
    pub is_writable: bool,
}

/// The files that a program may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// Everything that its user may use, except some paths. For a program that is not restricted
    /// otherwise.
    AllExcept {
        /// Files and folders that it does not see.
        hidden: Vec<PathBuf>,
        /// What it sees below hidden folders.
        kept: Vec<Grant>,
        /// Folders in which it must be able to make files. A hidden path in one of them can only be
        /// hidden by a namespace.
        workplaces: Vec<PathBuf>,
    },
    /// Only these paths, and a temporary folder of its own.
    Only {
        /// Files and folders that it may read and execute. Those of the system are added.
        read: Vec<PathBuf>,
        /// Files and folders that it may also change.
        write: Vec<PathBuf>,
        /// What it does not see below them.
        hidden: Vec<PathBuf>,
        /// What it sees below hidden folders.
        kept: Vec<Grant>,
    },
}

impl Files {
    /// Whether the program sees only what is named.
    pub(super) fn is_only_named(&self) -> bool {
        matches!(self, Self::Only { .. })
    }

    /// The paths that are named, if only these may be used.
    pub(super) fn named(&self) -> impl Iterator<Item = &PathBuf> {
        let (read, write): (&[PathBuf], &[PathBuf]) = match self {
            Self::Only { read, write, .. } => (read, write),
            Self::AllExcept { .. } => (&[], &[]),
        };
        read.iter().chain(write)
    }

    pub(super) fn hidden(&self) -> &[PathBuf] {
        match self {
            Self::AllExcept { hidden, .. } | Self::Only { hidden, .. } => hidden,
        }
    }

    pub(super) fn kept(&self) -> &[Grant] {
        match self {
            Self::AllExcept { kept, .. } | Self::Only { kept, .. } => kept,
        }
    }
}

/// The network that a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// All of it.
    All,
    /// None of it.
    None,
    /// Only TCP connections to this port, where a proxy listens on loopback.
    Proxy(u16),
}

/// Bounds of a program's resources. `None`: not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of private memory of each process.
    pub memory: Option<u64>,
    /// Seconds of processor time of each process.
    pub cpu_seconds: Option<u64>,
    /// Processes and threads, beside those that the user runs already.
    pub processes: Option<u64>,
    /// Open files of each process.
    pub files: Option<u64>,
    /// Bytes of each file that is written.
    pub disk: Option<u64>,
}

/// The strongest means that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    None,
    /// System calls.
    Seccomp,
    /// Files, TCP, signals and abstract sockets, and system calls.
    Landlock,
    /// Files, network, processes, IPC, and all of the others.
    Namespaces,
}

impl Level {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        }
    }
}

/// A part of the rules that cannot be held on this machine, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotEnforced {
    /// The part: `files`, `network`, `signals` or `processes`.
    pub part: &'static str,
    /// One sentence for the operator.
    pub reason: String,
}

/// What every program may read and execute: programs and libraries of the system, and the settings that
/// libraries read.
pub(super) const SYSTEM_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
    // Not the folder: it has a socket by which names can be sent out.
    "/run/systemd/resolve/resolv.conf",
    "/run/systemd/resolve/stub-resolv.conf",
    "/sys/devices/system/cpu",
];
/// Files of the kernel that a program reads about itself, where it has no namespace of its own.
pub(super) const KERNEL_PATHS: &[&str] = &["/proc"];
/// Devices that hold nothing.
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// What a program of root keeps: what a container has by default, without devices.
pub(super) const KEPT_CAPABILITIES: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::SETFCAP, "CAP_SETFCAP"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETPCAP, "CAP_SETPCAP"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SYS_CHROOT, "CAP_SYS_CHROOT"),
];
