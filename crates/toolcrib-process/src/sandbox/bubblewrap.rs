//! The command line of bubblewrap, which makes namespaces.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::carve::{Link, Location, is_writable, real_grants, real_path};
use super::rules::{Files, Grant, KEPT_CAPABILITIES, Network, Rules, SYSTEM_PATHS};
use super::support::Namespaces;

/// Parts of `/proc` that change the whole system.
const KERNEL_SETTINGS: [&str; 4] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"];

/// System files that may change in place while a program runs, such as in a container whose network changes.
const CHANGING: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// Arguments before the program's own, and the files that bubblewrap reads. `named` are the locations of
/// [`Files::named`], `filters` are pipes that hold the filters for system calls.
pub(super) fn arguments(
    rules: &Rules,
    named: &[Location],
    namespaces: Namespaces,
    filters: Vec<OwnedFd>,
) -> (Vec<OsString>, Vec<OwnedFd>) {
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
        Files::Only { read, .. } => {
            for flag in ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
                all.flag(flag);
            }
            for path in SYSTEM_PATHS.iter().map(Path::new) {
                all.system(path, rules.network == Network::All);
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
            let system = SYSTEM_PATHS.iter().map(Path::new);
            let system: Vec<&Path> = system.filter(|path| path.is_dir()).collect();
            let is_there = |path: &Path| system.iter().any(|folder| path.starts_with(folder));
            // A mount shows hidden files if it stands at a path with a link, since they are hidden at
            // their real path.
            let links: BTreeSet<&Link> = named.iter().flat_map(|found| &found.links).collect();
            for link in links.iter().filter(|link| !is_there(&link.path)) {
                all.link(&link.target, &link.path);
            }
            let (read, write) = named.split_at(read.len());
            let real_paths = |found: &[Location]| -> BTreeSet<PathBuf> {
                found.iter().map(|found| found.real.clone()).collect()
            };
            for path in real_paths(read).iter().filter(|path| !is_there(path)) {
                all.bind("--ro-bind-try", path);
            }
            for path in real_paths(write) {
                all.bind("--bind-try", &path);
            }
        }
    }
    if rules.network == Network::None {
        all.flag("--unshare-net");
    }
    all.hide(&rules.files, named);
    if is_only_named {
        // It is in memory, and no limit bounds it.
        all.add("--remount-ro", "/");
    }
    for filter in filters {
        all.add("--add-seccomp-fd", &filter.as_raw_fd().to_string());
        all.files.push(filter);
    }
    all.flag("--");
    (all.words, all.files)
}

#[derive(Default)]
struct Arguments {
    words: Vec<OsString>,
    files: Vec<OwnedFd>,
}

impl Arguments {
    fn flag(&mut self, flag: &str) {
        self.words.push(flag.into());
    }

    fn add(&mut self, flag: &str, value: &str) {
        self.words.extend([flag.into(), value.into()]);
    }

    fn link(&mut self, target: &Path, path: &Path) {
        self.words
            .extend(["--symlink".into(), target.into(), path.into()]);
    }

    /// A part of the system. A link or a copy takes a tenth of the time of a mount.
    fn system(&mut self, path: &Path, network_may_change: bool) {
        if let Ok(target) = std::fs::read_link(path) {
            return self.link(&target, path);
        }
        let may_change = network_may_change && CHANGING.iter().any(|name| path == Path::new(name));
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() && !may_change => self.copy(path),
            Ok(_) => self.bind("--ro-bind", path),
            Err(_) => {}
        }
    }

    fn copy(&mut self, path: &Path) {
        if let Ok(file) = std::fs::File::open(path) {
            let number = file.as_raw_fd().to_string();
            self.add("--perms", "0444");
            self.words
                .extend(["--file".into(), number.into(), path.into()]);
            self.files.push(file.into());
        }
    }

    fn bind(&mut self, flag: &str, path: &Path) {
        self.words.extend([flag.into(), path.into(), path.into()]);
    }

    /// Mounts something over each hidden path that cannot be opened, or is empty.
    fn hide(&mut self, files: &Files, named: &[Location]) {
        let kept = real_grants(files.kept());
        // A mount over a path that the program does not see would only show its name.
        let seen: Vec<PathBuf> = match files {
            Files::AllExcept { .. } => vec!["/".into()],
            Files::Only { .. } => {
                let system = SYSTEM_PATHS.iter().map(|path| real_path(Path::new(path)));
                let named = named.iter().map(|found| found.real.clone());
                system.chain(named).collect()
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
                || kept.iter().any(|kept| path.starts_with(&kept.path))
        };
        for path in hidden.iter().filter(is_outermost) {
            if path.is_dir() {
                let inside: Vec<&Grant> = kept
                    .iter()
                    .filter(|kept| kept.path.starts_with(path))
                    .collect();
                if inside.is_empty() {
                    self.add("--perms", "0000");
                }
                self.words.extend(["--tmpfs".into(), path.into()]);
                for kept in inside {
                    let flag = match kept.is_writable {
                        true => "--bind-try",
                        false => "--ro-bind-try",
                    };
                    self.bind(flag, &kept.path);
                }
                self.words.extend(["--remount-ro".into(), path.into()]);
            } else if path.exists() {
                // The mount permits no devices, so not even root can open this one.
                self.words
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
