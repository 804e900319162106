//! Finds the file of a program.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file of a bare program name: the first executable file of that name in the folders of
/// `path`.
pub fn which(path: &OsStr, name: &Path) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable_file(file))
}

/// Whether the path is an executable file.
pub fn is_executable_file(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
