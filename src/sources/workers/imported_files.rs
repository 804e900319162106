//! The files that a module has imported, and whether they have changed since.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Size, inode, and the time of the last change.
type Stamp = (u64, u64, i64, i64);

/// Files with their state at one time. `None`: the file cannot be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ImportedFiles(BTreeMap<PathBuf, Option<Stamp>>);

impl ImportedFiles {
    /// These files. Those of `before` have the state that they had then: a file that has changed
    /// while it was loaded has changed since.
    pub(super) fn new(files: impl IntoIterator<Item = PathBuf>, before: &Self) -> Self {
        let files = files.into_iter().map(|file| {
            let known = before.0.get(&file);
            let stamp = known.copied().unwrap_or_else(|| read_stamp(&file));
            (file, stamp)
        });
        Self(files.collect())
    }

    /// The same files with their state now.
    pub(super) fn refreshed(&self) -> Self {
        let files = self.0.keys();
        Self(files.map(|file| (file.clone(), read_stamp(file))).collect())
    }

    /// Whether there is no file.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read_stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    Some((metadata.len(), metadata.ino(), seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_during_a_load_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.ts");
        std::fs::write(&file, "one").unwrap();
        let first = ImportedFiles::new([file.clone()], &ImportedFiles::default());
        assert_eq!(first.refreshed(), first);
        let before = first.refreshed();
        std::fs::write(&file, "longer").unwrap();
        let second = ImportedFiles::new([file.clone()], &before);
        assert_ne!(second.refreshed(), second);
        let third = ImportedFiles::new([file.clone()], &second.refreshed());
        assert_eq!(third.refreshed(), third);
        std::fs::remove_file(&file).unwrap();
        assert_ne!(third.refreshed(), third);
    }
}
