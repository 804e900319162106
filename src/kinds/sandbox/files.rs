//! The files of the service and of its entries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use toolcrib_process::sandbox::Support;

use crate::kinds::http::OwnPorts;

/// What the sandboxes of one service share. Clones share the same state.
#[derive(Clone, Default)]
pub struct Sandboxes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    own_ports: OwnPorts,
    /// `None`: not tried yet.
    support: Mutex<Option<Support>>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    files: ServiceFiles,
    ledger: Option<PathBuf>,
    /// The folder of virtual environments.
    venvs: Option<PathBuf>,
    is_required: bool,
    /// Grows with each change.
    generation: u64,
}

/// The files that belong to the service, and the folders of its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFiles {
    /// The manifest, its included files, the files of its secrets, and its pins.
    pub own: Vec<PathBuf>,
    /// The working folders of all entries.
    pub workdirs: Vec<PathBuf>,
    /// The folders that patterns below `include` name.
    pub included: Vec<PathBuf>,
}

/// The suffixes of files that SQLite makes beside a ledger (`sqlite.org/tempfiles.html`). They may not be
/// there yet.
const LEDGER_SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

impl Sandboxes {
    /// Sandboxes of a service that listens at these ports.
    pub fn new(own_ports: OwnPorts) -> Self {
        Self(Arc::new(Shared {
            own_ports,
            ..Shared::default()
        }))
    }

    /// The ports at which this service listens.
    pub(super) fn own_ports(&self) -> OwnPorts {
        self.0.own_ports.clone()
    }

    /// What this machine can do. The first call tries it, which takes some milliseconds.
    pub fn support(&self) -> Support {
        let mut support = self.0.support.lock();
        support.get_or_insert_with(Support::probe).clone()
    }

    /// Sets the files, after a manifest was read.
    pub fn set_files(&self, files: ServiceFiles) {
        let mut state = self.0.state.write();
        if state.files != files {
            state.files = files;
            state.generation += 1;
        }
    }

    /// Sets the file of the ledger, and the folder of virtual environments.
    pub fn set_ledger(&self, file: PathBuf, venvs: &Path) {
        let mut state = self.0.state.write();
        (state.ledger, state.venvs) = (Some(file), Some(venvs.to_owned()));
        state.generation += 1;
    }

    /// Sets whether every sandbox must be enforced completely (`server.sandbox: required`).
    pub fn set_required(&self, is_required: bool) {
        self.0.state.write().is_required = is_required;
    }

    /// Whether every sandbox must be enforced completely.
    pub fn is_required(&self) -> bool {
        self.0.state.read().is_required
    }

    /// Grows when the files change.
    pub(super) fn generation(&self) -> u64 {
        self.0.state.read().generation
    }

    /// Makes the journal of the ledger, if programs in this working folder see it. SQLite would roll the ledger
    /// back by a journal that a program has put there. SQLite ignores an empty one, and a sandbox can hide it.
    pub(super) fn hold_journal(&self, workdir: &Path) {
        let state = self.0.state.read();
        let Some(ledger) = state.ledger.as_ref().filter(|ledger| ledger.is_file()) else {
            return;
        };
        let (files, is_alone) = ledger_files(ledger, state.venvs.as_deref());
        let is_journal = |path: &&PathBuf| path.to_string_lossy().ends_with("-journal");
        let is_seen = !is_alone || ledger.parent() == Some(workdir);
        if let Some(journal) = files.iter().find(is_journal).filter(|_| is_seen) {
            // It is there already, or the folder cannot be written: then programs cannot write it, either.
            let _ = std::fs::File::create_new(journal);
        }
    }

    /// Folders in which a new file becomes a part of the manifest.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        self.0.state.read().files.included.clone()
    }

    /// What a program does not see that needs these paths: files of the service, and folders that only
    /// other entries name.
    pub(super) fn hidden_from(&self, needed: &[PathBuf]) -> Vec<PathBuf> {
        let state = self.0.state.read();
        let mut hidden: Vec<PathBuf> = state.files.own.clone();
        if let Some(ledger) = &state.ledger {
            let venvs = state.venvs.as_deref();
            let paths = ledger_paths(ledger, venvs);
            // The working folder of an entry may be the folder of the ledger.
            let is_needed = paths.iter().any(|path| needed.contains(path));
            hidden.extend(match is_needed {
                true => ledger_files(ledger, venvs).0,
                false => paths,
            });
        }
        hidden.extend(state.venvs.clone());
        // A folder that holds something of this entry, or is a part of its folder, is not only another's.
        let is_apart = |folder: &PathBuf| {
            let mut needed = needed.iter();
            !needed.any(|own| own.starts_with(folder) || folder.starts_with(own))
        };
        let others = state.files.workdirs.iter();
        hidden.extend(others.filter(|folder| is_apart(folder)).cloned());
        hidden.retain(|path| !needed.contains(path));
        hidden.sort();
        hidden.dedup();
        hidden
    }
}

/// The folder of the ledger if it holds nothing else, otherwise the ledger's files.
fn ledger_paths(ledger: &Path, venvs: Option<&Path>) -> Vec<PathBuf> {
    let (files, is_alone) = ledger_files(ledger, venvs);
    let folder = ledger.parent().filter(|folder| folder.parent().is_some());
    match folder.filter(|_| is_alone) {
        Some(folder) => vec![folder.to_owned()],
        None => files,
    }
}

/// The ledger's files, and whether their folder holds nothing else.
fn ledger_files(ledger: &Path, venvs: Option<&Path>) -> (Vec<PathBuf>, bool) {
    let file_name = ledger.file_name().unwrap_or_default().to_string_lossy();
    let is_of_ledger = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&*file_name) || venvs == Some(path) || name == "lost+found"
    };
    let folder = ledger.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = entries
        .map(|entry| entry.path())
        .partition(|path| is_of_ledger(path));
    let beside = |suffix: &&str| {
        let mut path = ledger.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
    };
    let files = LEDGER_SUFFIXES.iter().map(beside).chain(own).collect();
    (files, others.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(texts: &[&str]) -> Vec<PathBuf> {
        texts.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn folders_of_others_are_hidden() {
        let shared = Sandboxes::default();
        shared.set_files(ServiceFiles {
            own: paths(&["/etc/crib/toolcrib.yaml", "/run/key"]),
            workdirs: paths(&["/srv/a", "/srv/b", "/srv/a/deep", "/srv"]),
            included: Vec::new(),
        });
        let own = ["/etc/crib/toolcrib.yaml", "/run/key"];
        assert_eq!(
            shared.hidden_from(&paths(&["/srv/a"])),
            paths(&[own[0], own[1], "/srv/b"]),
            "its own folder, a part of it and what holds it are not hidden"
        );
        assert_eq!(
            shared.hidden_from(&paths(&["/srv", "/run/key"])),
            paths(&[own[0]]),
            "a file that it names is not hidden"
        );
    }

    #[test]
    fn a_ledger_in_a_folder_of_its_own_hides_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        for name in ["ledger.db", "ledger.db-wal"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(ledger_paths(&ledger, None), [folder.path()]);
        std::fs::write(folder.path().join("script.py"), "x").unwrap();
        let beside = ledger_paths(&ledger, None);
        assert!(beside.contains(&ledger) && !beside.contains(&folder.path().to_owned()));
    }

    #[test]
    fn a_program_in_the_folder_of_the_ledger_does_not_see_the_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        std::fs::write(&ledger, "x").unwrap();
        let shared = Sandboxes::default();
        shared.set_ledger(ledger.clone(), &folder.path().join("venvs"));
        let hidden = shared.hidden_from(&[folder.path().to_owned()]);
        assert!(hidden.contains(&ledger), "{hidden:?}");
    }
}
