//! `toolcrib check`: prints the faults of a manifest, for people and for programs.

mod arguments;
mod document;
mod live;
mod text;

use std::collections::HashMap;
use std::path::Path;

use self::arguments::CheckFormat;
pub(super) use self::arguments::{CheckArgs, rules_help};
use super::Failure;
use super::manifest_file::{DEFAULT_MANIFEST, describe_missing_manifest};
use super::output::{print_json, print_line, print_note};
use crate::app::DeclaredTools;
use crate::environment::Environment;
use crate::manifest::{self, Checked, Finding, Location, Manifest, ProcessInput, Rule, Severity};

pub(super) async fn run(args: &CheckArgs, environment: &Environment) -> Result<(), Failure> {
    let path = args.path()?;
    let input = ProcessInput::new(environment);
    let input = match args.no_secrets {
        true => input.without_secrets(),
        false => input,
    };
    let mut checked = match &path {
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
        DeclaredTools::default()
    };
    // Without the tools of a failed source, an entry for them would be a mistake.
    if is_listed && live.faults.is_empty() {
        checked.recheck_lists(&live.tools);
    }
    let exposed = live::find_exposed(&live.tools, path);
    checked.findings.extend(exposed);
    let has_findings = checked
        .findings
        .iter()
        .any(|finding| finding.severity <= threshold)
        || args.strict && live.count_warnings() > 0;
    let variables = document::variable_views(&checked.variables, &input);
    let ok = !has_findings && live.faults.is_empty();
    match args.format {
        CheckFormat::Json => {
            let live = is_listed.then_some(&live);
            print_json(&document::to_json(path, &checked, live, &variables, ok));
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
    let place = Location::start_of(Path::new(DEFAULT_MANIFEST));
    let message = describe_missing_manifest(" to check");
    let findings = vec![Finding::error(place, "", message).with_rule(Rule::Unreadable)];
    Checked {
        findings,
        manifest: Manifest::default(),
        variables: Vec::new(),
    }
}
