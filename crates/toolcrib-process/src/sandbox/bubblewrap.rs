//! The command line of bubblewrap, which makes namespaces.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::carve::{is_writable, real_path};
use super::rules::{Files, KEPT_CAPABILITIES, Network, Rules, SYSTEM_PATHS};
use super::support::Namespaces;

/// Parts of `/proc` that change the whole system.
const KERNEL_SETTINGS: [&str; 4] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"];

/// Arguments before the program's own. `filters` are pipes that hold the filters for system calls.
pub(super) fn arguments(
    rules: &Rules,
    namespaces: Namespaces,
    filters: &[OwnedFd],
) -> Vec<OsString> {
    let mut all = Arguments::default();
    let is_only_named = rules.files.is_only_named();
    if namespaces.works_as_user && (is_only_named || !namespaces.works_as_root) {
        all.flag("--unshare-user");
        all.add("--cap-drop", "ALL");
    } else {
        all.add("--cap-drop", "ALL");
        for capability in KEPT_CAPABILITIES.iter().filter(|_| !is_only_named) {
            all.add("--cap-add", capability.1);
        }
    }
    all.flag("--unshare-pid");
    match &rules.files {
        Files::AllExcept { .. } => {
            all.bind("--dev-bind", Path::new("/"));
            all.add("--proc", "/proc");
        }
        Files::Only { read, write, .. } => {
            for flag in ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
                all.flag(flag);
            }
            for path in SYSTEM_PATHS.iter().map(Path::new) {
                match std::fs::read_link(path) {
                    // On most systems, /bin is a link into /usr. A mount would take longer.
                    Ok(target) => all.link(&target, path),
                    Err(_) if path.exists() => all.bind("--ro-bind", path),
                    Err(_) => {}
                }
            }
            all.add("--proc", "/proc");
            // Root may write settings of the kernel without any capability, such as the program that handles
            // core dumps.
            for path in KERNEL_SETTINGS.iter().filter(|_| geteuid().is_root()) {
                all.bind("--ro-bind-try", Path::new(path));
            }
            all.add("--dev", "/dev");
            for folder in ["/dev/shm", "/tmp"] {
                if let Some(size) = rules.limits.disk {
                    all.add("--size", &size.to_string());
                }
                all.add("--tmpfs", folder);
            }
            all.add("--remount-ro", "/dev");
            for path in read {
                all.bind("--ro-bind-try", path);
            }
            for path in write {
                all.bind("--bind-try", path);
            }
        }
    }
    if rules.network == Network::None {
        all.flag("--unshare-net");
    }
    all.hide(&rules.files);
    if is_only_named {
        // It is in memory, and no limit bounds it.
        all.add("--remount-ro", "/");
    }
    for filter in filters {
        all.add("--add-seccomp-fd", &filter.as_raw_fd().to_string());
    }
    all.flag("--");
    all.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, flag: &str) {
        self.0.push(flag.into());
    }

    fn add(&mut self, flag: &str, value: &str) {
        self.0.extend([flag.into(), value.into()]);
    }

    fn link(&mut self, target: &Path, path: &Path) {
        self.0
            .extend(["--symlink".into(), target.into(), path.into()]);
    }

    fn bind(&mut self, flag: &str, path: &Path) {
        self.0.extend([flag.into(), path.into(), path.into()]);
    }

    /// Mounts something over each hidden path that cannot be opened, or is empty.
    fn hide(&mut self, files: &Files) {
        let kept: Vec<PathBuf> = files.kept().iter().map(|path| real_path(path)).collect();
        // A mount over a path that the program does not see would only show its name.
        let seen: Vec<PathBuf> = match files {
            Files::AllExcept { .. } => vec!["/".into()],
            Files::Only { read, write, .. } => {
                let system = SYSTEM_PATHS.iter().map(Path::new);
                let named = read.iter().chain(write).map(PathBuf::as_path);
                system.chain(named).map(real_path).collect()
            }
        };
        let is_seen = |path: &PathBuf| seen.iter().any(|seen| path.starts_with(seen));
        let hidden = files.hidden().iter().map(|path| real_path(path));
        let hidden: Vec<PathBuf> = hidden.filter(is_seen).collect();
        if matches!(files, Files::AllExcept { .. }) {
            for folder in renameable_folders(&hidden) {
                self.bind("--dev-bind-try", &folder);
            }
        }
        // What is in a hidden folder is hidden with it.
        let is_outermost = |path: &&PathBuf| {
            let mut others = hidden.iter();
            !others.any(|other| other != *path && path.starts_with(other))
                || kept.iter().any(|kept| path.starts_with(kept))
        };
        for path in hidden.iter().filter(is_outermost) {
            if path.is_dir() {
                let inside: Vec<&PathBuf> =
                    kept.iter().filter(|kept| kept.starts_with(path)).collect();
                if inside.is_empty() {
                    self.add("--perms", "0000");
                }
                self.0.extend(["--tmpfs".into(), path.into()]);
                for kept in inside {
                    self.bind("--bind-try", kept);
                }
                self.0.extend(["--remount-ro".into(), path.into()]);
            } else if path.exists() {
                // The mount permits no devices, so not even root can open this one.
                self.0
                    .extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
            }
        }
    }
}

/// The folders above hidden paths that a program could rename, outermost first. Under another name, what they
/// hold would not be hidden from the next program. A folder that is a mount cannot be renamed.
fn renameable_folders(hidden: &[PathBuf]) -> BTreeSet<PathBuf> {
    let above = hidden.iter().flat_map(|path| path.ancestors().skip(1));
    let can_rename = |folder: &&Path| {
        let parent = folder.parent();
        parent.is_some_and(|parent| parent.parent().is_some() && is_writable(parent))
    };
    above.filter(can_rename).map(PathBuf::from).collect()
}
