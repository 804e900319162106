//! Which manifest a command reads.

use std::path::{Path, PathBuf};

use super::Failure;
use crate::app::{App, AppBuilder};
use crate::environment::Environment;
use crate::kinds::builtin::run_script::ScriptProgram;

/// The name of a new manifest.
pub(super) const DEFAULT_MANIFEST: &str = "toolcrib.yaml";
/// The names that are found in the working folder.
pub(super) const DEFAULT_MANIFESTS: [&str; 2] = [DEFAULT_MANIFEST, "toolcrib.yml"];

/// The manifest, for commands that work without one, too.
#[derive(clap::Args)]
pub(super) struct ManifestArg {
    /// The manifest. Default: toolcrib.yaml or toolcrib.yml in this folder if it exists, else the
    /// built-in demo.
    #[arg(long, short, env = "TOOLCRIB_MANIFEST")]
    pub(super) manifest: Option<PathBuf>,
}

impl ManifestArg {
    /// The manifest that was named, or the one in the working folder.
    pub(super) fn path(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.manifest {
            Some(path) => Ok(Some(path.clone())),
            None => find_manifest(Path::new("")),
        }
    }

    /// The manifest, for a command that needs one. `purpose` completes "there is no manifest".
    pub(super) fn required_path(&self, purpose: &str) -> Result<PathBuf, Failure> {
        self.path()?
            .ok_or_else(|| Failure::Usage(describe_missing_manifest(purpose)))
    }

    /// A builder with the manifest, or with the tools of the demo.
    pub(super) fn app_builder(&self, environment: &Environment) -> Result<AppBuilder, Failure> {
        let mut builder = App::builder().environment(environment.clone());
        if let Ok(program) = std::env::current_exe() {
            builder = builder.share(ScriptProgram(program));
        }
        match self.path()? {
            Some(path) => Ok(builder.manifest_only().manifest(path)?),
            None => Ok(builder.demo()),
        }
    }
}

/// The message of a command that needs a manifest and finds none.
pub(super) fn describe_missing_manifest(purpose: &str) -> String {
    format!(
        "there is no manifest{purpose}: name one with --manifest, or make one with toolcrib init"
    )
}

/// Logs that the built-in demo tools take the place of a manifest.
pub(super) fn log_demo() {
    tracing::info!("no manifest: the built-in demo tools are used");
}

/// The manifest in this folder. Two of them are an error, since one would be ignored.
fn find_manifest(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let mut found = DEFAULT_MANIFESTS
        .map(|name| folder.join(name))
        .into_iter()
        .filter(|path| path.exists());
    match (found.next(), found.next()) {
        (Some(one), Some(other)) => Err(Failure::Usage(format!(
            "there are two manifests here, {} and {}: remove one of them, or name one with --manifest",
            one.display(),
            other.display()
        ))),
        (one, _) => Ok(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_found_by_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let found = || find_manifest(folder.path()).map_err(|_| ());
        assert_eq!(found(), Ok(None));
        std::fs::write(folder.path().join("toolcrib.yml"), "").unwrap();
        assert_eq!(found(), Ok(Some(folder.path().join("toolcrib.yml"))));
        std::fs::write(folder.path().join("toolcrib.yaml"), "").unwrap();
        assert_eq!(found(), Err(()));
        std::fs::remove_file(folder.path().join("toolcrib.yml")).unwrap();
        assert_eq!(found(), Ok(Some(folder.path().join("toolcrib.yaml"))));
    }
}
