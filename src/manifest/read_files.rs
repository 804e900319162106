//! Records the files that a manifest reads. Programs of tools do not see them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::Manifest;
use super::pins::pins_path;
use super::references::ManifestInput;
use crate::kinds::sandbox::ServiceFiles;

/// An input that remembers the files.
pub(super) struct ReadFiles<'a> {
    input: &'a dyn ManifestInput,
    files: RefCell<Vec<PathBuf>>,
    patterns: RefCell<Vec<String>>,
}

impl<'a> ReadFiles<'a> {
    pub(super) fn new(input: &'a dyn ManifestInput) -> Self {
        Self {
            input,
            files: RefCell::default(),
            patterns: RefCell::default(),
        }
    }

    /// The files of the service, and the working folders of the entries.
    pub(super) fn into_service_files(self, manifest: &Path, content: &Manifest) -> ServiceFiles {
        let mut own = self.files.into_inner();
        own.push(pins_path(manifest));
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let included = self.patterns.into_inner();
        let included: Vec<PathBuf> = included.iter().filter_map(|text| folder_of(text)).collect();
        let tools = content.tools.iter();
        let of_tools =
            tools.filter_map(|tool| Some(tool.runner.sandbox()?.own().workdir.as_path()));
        let sources = content.sources.iter();
        let of_sources = sources.filter_map(|source| source.settings.workdir());
        ServiceFiles {
            own: own.iter().map(absolute).collect(),
            workdirs: of_tools.chain(of_sources).map(PathBuf::from).collect(),
            included: included.iter().map(absolute).collect(),
        }
    }
}

impl ManifestInput for ReadFiles<'_> {
    fn env_var(&self, name: &str) -> Option<String> {
        self.input.env_var(name)
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        self.files.borrow_mut().push(path.to_owned());
        self.input.read_text(path)
    }

    fn accepts_missing_secrets(&self) -> bool {
        self.input.accepts_missing_secrets()
    }

    fn is_file(&self, path: &Path) -> bool {
        self.input.is_file(path)
    }

    fn matching_files(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        self.patterns.borrow_mut().push(pattern.to_owned());
        self.input.matching_files(pattern)
    }
}

/// The folder in which a pattern looks for files; `None`: it names one file.
fn folder_of(pattern: &str) -> Option<PathBuf> {
    let wildcard = pattern.find(['*', '?', '['])?;
    let folder = &pattern[..pattern[..wildcard].rfind('/').map_or(0, |end| end + 1)];
    Some(PathBuf::from(if folder.is_empty() { "." } else { folder }))
}
