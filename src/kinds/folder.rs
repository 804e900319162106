//! Reads files below one folder, for tools whose arguments name files.
//!
//! The folder is opened once, when the tool is built, and cap-std resolves every path inside it. No
//! `..`, symlink or absolute path leads out, even if files are renamed meanwhile. Only regular
//! files are opened. Opening never blocks, so a FIFO or a device cannot stall a call.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use url::Url;

use crate::call::{ToolContext, ToolError};
use crate::kinds::ConfigFault;

/// The most bytes of a path (`PATH_MAX` in Linux).
pub(super) const MAX_PATH_BYTES: usize = 4096;

/// A folder whose files tools read. Clones share the open folder.
#[derive(Clone)]
pub(super) struct Folder(Arc<Dir>);

/// An open file of the folder.
pub(super) struct OpenedFile<'a> {
    path: &'a str,
    file: File,
    context: &'a ToolContext,
}

impl Folder {
    /// Opens the folder. `root` is relative to the manifest's folder.
    pub(super) fn open(root: &Path, base: &Path) -> Result<Self, ConfigFault> {
        let root = base.join(root);
        Self::open_path(&root).map_err(|error| {
            // Without the `.` components, for the message: `.` and `./notes` are joined to
            // `././notes`.
            let shown: PathBuf = root.components().collect();
            ConfigFault::error(
                &["with", "root"],
                format!("cannot open the folder {}: {error}", shown.display()),
            )
        })
    }

    /// Opens the folder at this path, if no part of the path is a link.
    pub(super) fn open_without_links(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            // Some containers do not have the call.
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            opened => opened,
        };
        Ok(Self(Arc::new(Dir::from_std_file(opened?.into()))))
    }

    /// Opens the folder at this path.
    fn open_path(path: &Path) -> io::Result<Self> {
        Dir::open_ambient_dir(path, ambient_authority()).map(|dir| Self(Arc::new(dir)))
    }

    /// Opens the regular file at `path`, unless it is denied. Both the given path and the path to
    /// which links lead are checked, each relative to the folder.
    pub(super) fn open_unless_denied<'a>(
        &self,
        path: &'a str,
        denied: impl Fn(&str) -> bool,
        context: &'a ToolContext,
    ) -> Result<OpenedFile<'a>, ToolError> {
        let denied_error = || {
            file_error(
                path,
                "is not read: the operator has denied files of this kind",
            )
        };
        // Callers check the parts of the path that a call gives. A template may join several.
        if let Some(fault) = path_fault("path", path) {
            return Err(ToolError::ErrorResult(fault));
        }
        // Checked before any access to the folder: the error must not show whether a denied file
        // exists.
        if denied(path) {
            return Err(denied_error());
        }
        let resolve = || {
            self.0
                .canonicalize(path)
                .map_err(|error| io_error(path, &error))
        };
        let resolved = resolve()?;
        if denied(&resolved.to_string_lossy()) {
            return Err(denied_error());
        }
        // A link may be changed between the check and the opening. So two conditions must hold
        // after the opening. The checked path leads to the opened file (same device and inode), and
        // `path` still resolves to the checked path. Otherwise a denied file could be read.
        let opened = self.open_regular_file(path, context)?;
        let checked = self
            .0
            .symlink_metadata(&resolved)
            .map_err(|error| io_error(path, &error))?;
        let open = opened
            .file
            .metadata()
            .map_err(|error| io_error(path, &error))?;
        let is_same_file = (checked.dev(), checked.ino()) == (open.dev(), open.ino());
        if is_same_file && resolve()? == resolved {
            Ok(opened)
        } else {
            Err(file_error(path, "has changed meanwhile: try again"))
        }
    }

    /// Opens the file at `path` if it is a regular file.
    fn open_regular_file<'a>(
        &self,
        path: &'a str,
        context: &'a ToolContext,
    ) -> Result<OpenedFile<'a>, ToolError> {
        let failed = |error| io_error(path, &error);
        let require_file = |metadata: Metadata| match metadata.is_file() {
            true => Ok(()),
            false if metadata.is_dir() => Err(file_error(path, "is a folder, not a file")),
            false => Err(file_error(path, "is not a regular file")),
        };
        require_file(self.0.metadata(path).map_err(failed)?)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = self.0.open_with(path, &options).map_err(failed)?;
        // Another file may have replaced it since the check.
        require_file(file.metadata().map_err(failed)?)?;
        Ok(OpenedFile {
            path,
            file,
            context,
        })
    }
}

impl OpenedFile<'_> {
    /// Whether it is the file at this path, by any name.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (own, other) = (self.file.metadata(), std::fs::metadata(path));
        own.ok()
            .zip(other.ok())
            .is_some_and(|(own, other)| (own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// The remaining bytes of the file, after `head`. More than `max_bytes` bytes in total are an
    /// error, because a part would be useless. The error names `key`, the setting of the bound.
    pub(super) fn read_all(
        self,
        head: Vec<u8>,
        max_bytes: usize,
        key: &str,
    ) -> Result<Vec<u8>, ToolError> {
        let (path, mut bytes) = (self.path, head);
        let room = (max_bytes + 1).saturating_sub(bytes.len()) as u64;
        self.take(room)
            .read_to_end(&mut bytes)
            .map_err(|error| io_error(path, &error))?;
        if bytes.len() > max_bytes {
            return Err(file_error(
                path,
                &format!("is longer than {} (`{key}`)", ByteSize(max_bytes as u64)),
            ));
        }
        Ok(bytes)
    }
}

/// A read fails after the call is cancelled or its deadline has passed, because a file may be long.
impl Read for OpenedFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.context.cancelled.is_cancelled()
            || tokio::time::Instant::now() > self.context.deadline
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(into)
    }
}

/// Why the argument `name` cannot be a path: it is too long. A caller must check this before any
/// other code looks at the path.
pub(super) fn path_fault(name: &str, path: &str) -> Option<String> {
    (path.len() > MAX_PATH_BYTES)
        .then(|| format!("`{name}` is too long: a path has at most {MAX_PATH_BYTES} bytes."))
}

/// A URI for a file below the folder. It shows the folder as the root, so that the real path stays
/// hidden.
pub(super) fn file_uri(path: &str) -> String {
    let Ok(mut url) = Url::parse("file:///") else {
        return String::new();
    };
    if let Ok(mut segments) = url.path_segments_mut() {
        segments
            .pop_if_empty()
            .extend(path.split('/').filter(|segment| !segment.is_empty()));
    }
    url.into()
}

/// The error for a failed file operation. It never contains the system's message, which may hold a
/// path outside of the folder.
pub(super) fn io_error(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        io::ErrorKind::NotFound => file_error(
            path,
            "does not exist: paths are relative to the folder that this tool reads",
        ),
        // Without a number of the operating system, this is the refusal of cap-std.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => file_error(
            path,
            "leads out of the folder that this tool reads: use a path relative to it",
        ),
        kind => file_error(path, &format!("cannot be read: {kind}")),
    }
}

/// An error result about a file.
pub(super) fn file_error(path: &str, problem: &str) -> ToolError {
    let path: String = path.chars().take(200).collect();
    ToolError::ErrorResult(format!("`{path}` {problem}"))
}
