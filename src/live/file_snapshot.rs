//! Snapshots of files, to see whether they have changed: the manifest, what it includes, and the files of its
//! references.
//!
//! The files are polled. inotify does not work on network file systems and some bind mounts, and loses a file that is
//! replaced by another. Its watches are also a scarce resource of the whole machine. A poll is a few `stat` calls. Only
//! a file whose stat differs is read, and only different contents count as a change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::call::json::digest;
use crate::environment::Environment;
use crate::manifest::{Process, Source, matching, read_file};

/// A file that changed within this time may change again without a new time stamp, because file systems count in ticks.
const TICK: Duration = Duration::from_secs(2);

/// A snapshot of files, and of the paths that patterns match.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileSnapshot {
    files: BTreeMap<PathBuf, SeenFile>,
    patterns: BTreeMap<String, Vec<PathBuf>>,
}

#[derive(Debug, Clone)]
struct SeenFile {
    /// `None`: the file is missing, or so new that its contents must be compared again.
    stamp: Option<Stamp>,
    /// SHA-256 of the contents; `None`: the file cannot be read.
    content: Option<[u8; 32]>,
    blank: bool,
}

/// Device, inode, size, and the times of the last change of contents and of metadata. Links are followed.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(found.ctime()).ok()?))?;
    if SystemTime::now().duration_since(changed).is_ok_and(|age| age > TICK) {
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Some((found.dev(), found.ino(), found.len(), times))
    } else {
        None
    }
}

impl SeenFile {
    fn of(stamp: Option<Stamp>, text: Option<&[u8]>) -> Self {
        let blank = text.is_some_and(|text| text.trim_ascii().is_empty());
        Self { stamp, content: text.map(|text| digest([text])), blank }
    }
}

impl FileSnapshot {
    /// A snapshot of these files.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let one = |path: &Path| {
            let stamp = stamp(path);
            (path.to_owned(), SeenFile::of(stamp, read_file(path).ok().as_deref()))
        };
        Self { files: files.into_iter().map(one).collect(), patterns: BTreeMap::new() }
    }

    /// SHA-256 of each file's contents; `None` for a file that cannot be read.
    pub(super) fn contents(&self) -> impl Iterator<Item = Option<[u8; 32]>> {
        self.files.values().map(|file| file.content)
    }

    /// A new snapshot of the same files and patterns.
    pub(super) fn look_again(&self) -> Self {
        let look = |(path, before): (&PathBuf, &SeenFile)| {
            let stamp = stamp(path);
            let known = stamp.is_some() && stamp == before.stamp;
            let now = if known { before.clone() } else { SeenFile::of(stamp, read_file(path).ok().as_deref()) };
            (path.clone(), now)
        };
        let matched = |pattern: &String| (pattern.clone(), matching(pattern).unwrap_or_default());
        Self { files: self.files.iter().map(look).collect(), patterns: self.patterns.keys().map(matched).collect() }
    }

    /// Whether both snapshots have the same files with the same contents.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let same_files = self.files.keys().eq(other.files.keys()) && self.contents().eq(other.contents());
        self.patterns == other.patterns && same_files
    }

    /// Whether the file is empty, or has only white space.
    pub(super) fn is_blank(&self, path: &Path) -> bool {
        self.files.get(path).is_some_and(|file| file.blank)
    }
}

/// Reads variables and files, and records which files were read.
pub(super) struct Recorder {
    from: Process,
    seen: RefCell<FileSnapshot>,
}

impl Recorder {
    pub(super) fn new(environment: &Environment) -> Self {
        Self { from: Process::new(environment), seen: RefCell::default() }
    }

    pub(super) fn seen(self) -> FileSnapshot {
        self.seen.into_inner()
    }
}

impl Source for Recorder {
    fn env(&self, name: &str) -> Option<String> {
        self.from.env(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        // Take the stamp first. A write between the stamp and the read is then found by the next poll.
        let stamp = stamp(path);
        let read = self.from.file(path);
        let seen = SeenFile::of(stamp, read.as_ref().ok().map(String::as_bytes));
        self.seen.borrow_mut().files.insert(path.to_owned(), seen);
        read
    }

    fn matching(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let files = self.from.matching(pattern)?;
        self.seen.borrow_mut().patterns.insert(pattern.to_owned(), files.clone());
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_differently_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pattern = at("*.yaml").to_string_lossy().into_owned();
        std::fs::write(at("a.yaml"), "one").unwrap();
        let recorder = Recorder::new(&Environment::default());
        assert_eq!(recorder.file(&at("a.yaml")).unwrap(), "one");
        assert!(recorder.file(&at("missing")).is_err());
        assert_eq!(recorder.matching(&pattern).unwrap(), [at("a.yaml")]);
        let seen = recorder.seen();
        let same = || seen.says_the_same(&seen.look_again());
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
    fn a_file_that_has_settled_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "one").unwrap();
        // The file is too new, so it has no stamp.
        assert_eq!(stamp(&file), None);
        assert!(stamp(Path::new("/proc/self/exe")).is_some() || stamp(Path::new("/usr")).is_some());
    }
}
