//! Snapshots of files, to detect changes: the manifest, what it includes, and the files of its
//! references.
//!
//! The files are polled. inotify does not work on network file systems and some bind mounts, and
//! loses a file that is replaced by another. Its watches are also a scarce resource of the whole
//! machine. A poll is a few `stat` calls. Only a file whose stat differs is read, and only
//! different contents count as a change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::call::json::hash_parts;
use crate::environment::Environment;
use crate::manifest::{ManifestInput, ProcessInput, matching_files, read_file};

/// A file that changed within this time may change again without a new time stamp, because file
/// systems count in ticks.
const TIMESTAMP_TICK: Duration = Duration::from_secs(2);

/// A snapshot of files, and of the paths that patterns match. Equal snapshots have the same files
/// with the same contents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileSnapshot {
    files: BTreeMap<PathBuf, FileState>,
    patterns: BTreeMap<String, Vec<PathBuf>>,
}

#[derive(Debug, Clone)]
struct FileState {
    /// `None`: the file is missing, or so new that its contents must be compared again.
    time_stamp: Option<Stamp>,
    /// SHA-256 of the contents; `None`: the file cannot be read.
    content_hash: Option<[u8; 32]>,
    blank: bool,
}

/// Device, inode, size, and the times of the last change of contents and of metadata. Links are
/// followed.
type Stamp = (u64, u64, u64, [i64; 4]);

fn read_stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    let changed = SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(u64::try_from(metadata.ctime()).ok()?))?;
    if SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|age| age > TIMESTAMP_TICK)
    {
        let times = [
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ];
        Some((metadata.dev(), metadata.ino(), metadata.len(), times))
    } else {
        None
    }
}

impl PartialEq for FileState {
    fn eq(&self, other: &Self) -> bool {
        self.content_hash == other.content_hash
    }
}

impl FileState {
    fn from_bytes(stamp: Option<Stamp>, text: Option<&[u8]>) -> Self {
        let blank = text.is_some_and(|text| text.trim_ascii().is_empty());
        Self {
            time_stamp: stamp,
            content_hash: text.map(|text| hash_parts([text])),
            blank,
        }
    }
}

impl FileSnapshot {
    /// A snapshot of these files.
    pub(super) fn from_files<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let snapshot_file = |path: &Path| {
            let stamp = read_stamp(path);
            (
                path.to_owned(),
                FileState::from_bytes(stamp, read_file(path).ok().as_deref()),
            )
        };
        Self {
            files: files.into_iter().map(snapshot_file).collect(),
            patterns: BTreeMap::new(),
        }
    }

    /// SHA-256 of each file's contents; `None` for a file that cannot be read.
    pub(super) fn content_hashes(&self) -> impl Iterator<Item = Option<[u8; 32]>> {
        self.files.values().map(|file| file.content_hash)
    }

    /// A new snapshot of the same files and patterns.
    pub(super) fn refreshed(&self) -> Self {
        let refresh = |(path, before): (&PathBuf, &FileState)| {
            let stamp = read_stamp(path);
            let is_unchanged = stamp.is_some() && stamp == before.time_stamp;
            let now = if is_unchanged {
                before.clone()
            } else {
                FileState::from_bytes(stamp, read_file(path).ok().as_deref())
            };
            (path.clone(), now)
        };
        let matched =
            |pattern: &String| (pattern.clone(), matching_files(pattern).unwrap_or_default());
        Self {
            files: self.files.iter().map(refresh).collect(),
            patterns: self.patterns.keys().map(matched).collect(),
        }
    }

    /// Whether the file is empty, or has only white space.
    pub(super) fn is_blank(&self, path: &Path) -> bool {
        self.files.get(path).is_some_and(|file| file.blank)
    }
}

/// Reads variables and files, and records which files were read.
pub(super) struct FileRecorder {
    process: ProcessInput,
    snapshot: RefCell<FileSnapshot>,
}

impl FileRecorder {
    pub(super) fn new(environment: &Environment) -> Self {
        Self {
            process: ProcessInput::new(environment),
            snapshot: RefCell::default(),
        }
    }

    pub(super) fn into_snapshot(self) -> FileSnapshot {
        self.snapshot.into_inner()
    }
}

impl ManifestInput for FileRecorder {
    fn env_var(&self, name: &str) -> Option<String> {
        self.process.env_var(name)
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        // Take the stamp first. A write between the stamp and the read is then found by the next
        // poll.
        let stamp = read_stamp(path);
        let read = self.process.read_text(path);
        let state = FileState::from_bytes(stamp, read.as_ref().ok().map(String::as_bytes));
        self.snapshot
            .borrow_mut()
            .files
            .insert(path.to_owned(), state);
        read
    }

    fn matching_files(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let files = self.process.matching_files(pattern)?;
        self.snapshot
            .borrow_mut()
            .patterns
            .insert(pattern.to_owned(), files.clone());
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_ignores_rewrites_of_same_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pattern = at("*.yaml").to_string_lossy().into_owned();
        std::fs::write(at("a.yaml"), "one").unwrap();
        let recorder = FileRecorder::new(&Environment::default());
        assert_eq!(recorder.read_text(&at("a.yaml")).unwrap(), "one");
        assert!(recorder.read_text(&at("missing")).is_err());
        assert_eq!(recorder.matching_files(&pattern).unwrap(), [at("a.yaml")]);
        let snapshot = recorder.into_snapshot();
        let same = || snapshot == snapshot.refreshed();
        assert!(same());
        // Write the same contents again, and replace the file by another with the same contents.
        std::fs::write(at("a.yaml"), "one").unwrap();
        std::fs::write(at("b"), "one").unwrap();
        std::fs::rename(at("b"), at("a.yaml")).unwrap();
        assert!(same());
        // A change with the same size within the same tick.
        std::fs::write(at("a.yaml"), "two").unwrap();
        assert!(!same());
        std::fs::write(at("a.yaml"), "one").unwrap();
        assert!(same());
        for (name, text) in [("b.yaml", ""), ("missing", "here")] {
            std::fs::write(at(name), text).unwrap();
            assert!(!same(), "{name}");
            std::fs::remove_file(at(name)).unwrap();
            assert!(same());
        }
        std::fs::remove_file(at("a.yaml")).unwrap();
        assert!(!same());
    }

    #[test]
    fn recent_file_has_no_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "one").unwrap();
        // The file is too new, so it has no stamp.
        assert_eq!(read_stamp(&file), None);
        assert!(
            read_stamp(Path::new("/proc/self/exe")).is_some()
                || read_stamp(Path::new("/usr")).is_some()
        );
    }
}
