//! `toolcrib check`: prints the faults of a manifest, for people and for programs.

mod document;
mod live;
mod text;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use self::document::CheckDocument;
use self::live::LiveOutcome;
use super::Failure;
use super::manifest_file::{DEFAULT_MANIFEST, ManifestArg, describe_missing_manifest};
use super::output::{print_line, print_note};
use crate::environment::Environment;
use crate::manifest::{self, Checked, Finding, Location, Manifest, ProcessInput, Rule, Severity};

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum CheckFormat {
    /// FILE:LINE:COLUMN: path: message, one a line.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `check`.
#[derive(clap::Args)]
pub(super) struct CheckArgs {
    /// The manifest, as with --manifest.
    #[arg(conflicts_with = "manifest")]
    file: Option<PathBuf>,
    #[command(flatten)]
    manifest: ManifestArg,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    format: CheckFormat,
    /// Exit 64 for warnings too. Hints never count.
    #[arg(long)]
    strict: bool,
    /// List every hint. Without it, more than three hints of one rule are one line.
    #[arg(long)]
    hints: bool,
    /// Accept references to variables that are not set and to files that do not exist, for CI
    /// without secrets.
    #[arg(long)]
    no_secrets: bool,
    /// Also start the modules and servers, list their tools, and report failures. Exit 1 if a
    /// source fails.
    #[arg(long, conflicts_with = "no_secrets")]
    live: bool,
}

impl CheckArgs {
    /// Whether sources are started.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    fn path(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.file {
            Some(file) => Ok(Some(file.clone())),
            None => self.manifest.path(),
        }
    }
}

/// The rules, for `check --help`.
pub(super) fn rules_help() -> String {
    let lines: Vec<String> = Rule::ALL
        .iter()
        .map(|rule| format!("  {:<22}{}", rule.as_str(), rule.description()))
        .collect();
    format!(
        "Rules (warnings, unless stated otherwise):\n{}",
        lines.join("\n")
    )
}

pub(super) async fn run(args: &CheckArgs, environment: &Environment) -> Result<(), Failure> {
    let path = args.path()?;
    let input = ProcessInput::new(environment);
    let input = if args.no_secrets {
        input.without_secrets()
    } else {
        input
    };
    let checked = match &path {
        Some(path) => manifest::check(path, &input, &HashMap::new()),
        None => missing_manifest(),
    };
    let path = path.as_deref().unwrap_or(Path::new(DEFAULT_MANIFEST));
    let threshold = if args.strict {
        Severity::Warning
    } else {
        Severity::Error
    };
    let is_listed = args.live && checked.count(Severity::Error) == 0;
    let live = if is_listed {
        live::list_sources(path, environment)
            .await?
            .without_repetitions(&checked.findings)
    } else {
        LiveOutcome::default()
    };
    let has_findings = checked
        .findings
        .iter()
        .any(|finding| finding.severity <= threshold)
        || args.strict && live.count_warnings() > 0;
    let variables = document::variable_views(&checked.variables, &input);
    let ok = !has_findings && live.faults.is_empty();
    match args.format {
        CheckFormat::Json => {
            let document =
                CheckDocument::new(path, &checked, is_listed.then_some(&live), variables, ok);
            let text = serde_json::to_string_pretty(&document)
                .map_err(|error| Failure::Failed(error.to_string()))?;
            print_line(&text);
        }
        CheckFormat::Text => {
            let text = text::format(
                path,
                &checked,
                is_listed.then_some(&live),
                &variables,
                ok,
                args.hints,
            );
            if ok {
                print_line(&text);
            } else {
                print_note(&text);
            }
        }
    }
    match (has_findings, ok) {
        (true, _) => Err(Failure::Reported),
        // Nothing is wrong with the manifest: a source failed.
        (false, false) => Err(Failure::NegativeResult),
        (false, true) => Ok(()),
    }
}

fn missing_manifest() -> Checked {
    let place = Location {
        file: Path::new(DEFAULT_MANIFEST).into(),
        line: 1,
        column: 1,
    };
    let message = describe_missing_manifest(" to check");
    let findings = vec![Finding::error(place, "", message).with_rule(Rule::Unreadable)];
    Checked {
        findings,
        manifest: Manifest::default(),
        variables: Vec::new(),
    }
}
