//! Arguments of `toolcrib check`.

use std::path::PathBuf;

use super::super::Failure;
use super::super::manifest_file::ManifestArg;
use crate::manifest::Rule;

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(in crate::cli) enum CheckFormat {
    /// FILE:LINE:COLUMN: path: message, one a line.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `check`.
#[derive(clap::Args)]
pub(in crate::cli) struct CheckArgs {
    /// The manifest, as with --manifest.
    #[arg(conflicts_with = "manifest")]
    file: Option<PathBuf>,
    #[command(flatten)]
    manifest: ManifestArg,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: CheckFormat,
    /// Exit 64 for warnings too. Hints never count.
    #[arg(long)]
    pub(super) strict: bool,
    /// List every hint. Without it, more than three hints of one rule are one line.
    #[arg(long)]
    pub(super) hints: bool,
    /// Accept references to variables that are not set and to files that do not exist, for CI
    /// without secrets.
    #[arg(long)]
    pub(super) no_secrets: bool,
    /// Also start the modules and servers, list their tools, and report failures. Exit 1 if a
    /// source fails.
    #[arg(long, conflicts_with = "no_secrets")]
    pub(in crate::cli) live: bool,
}

impl CheckArgs {
    /// The manifest's file; `None` if there is none.
    pub(super) fn path(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.file {
            Some(file) => Ok(Some(file.clone())),
            None => self.manifest.path(),
        }
    }
}

/// The rules, for `check --help`.
pub(in crate::cli) fn rules_help() -> String {
    let lines: Vec<String> = Rule::ALL
        .iter()
        .map(|rule| format!("  {:<22}{}", rule.as_str(), rule.description()))
        .collect();
    format!(
        "Rules (warnings, unless stated otherwise):\n{}",
        lines.join("\n")
    )
}
