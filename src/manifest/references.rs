//! `${env:NAME}` and `${file:/path}`: values that a manifest names instead of holding.

use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use rustix::fs::OFlags;
use serde_json::Value;

use super::decode::{Findings, join};
use super::finding::{Finding, Place, Severity};
use super::node::{Data, Node};
use super::reference_places::{AbsentItem, Owner, Reading};
use super::rule::Rule;
use crate::environment::Environment;

/// Where references lead. A trait, so that tests need not touch the process's environment.
pub trait Source {
    /// The value of an environment variable.
    fn env(&self, name: &str) -> Option<String>;

    /// The contents of a file.
    ///
    /// # Errors
    /// As the file system says.
    fn file(&self, path: &Path) -> std::io::Result<String>;

    /// Whether there is a file, to be read or run later.
    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    /// The files that a pattern with `*` and the like stands for, sorted.
    ///
    /// # Errors
    /// A sentence, when it is not a pattern.
    fn matching(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        matching(pattern)
    }
}

/// See [`Source::matching`].
pub(crate) fn matching(pattern: &str) -> Result<Vec<PathBuf>, String> {
    // As in shells: what begins with a dot is an editor's own, or hidden on purpose.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let found = glob::glob_with(pattern, options).map_err(|error| format!("not a pattern: {}", error.msg))?;
    let mut files: Vec<PathBuf> = found.filter_map(Result::ok).collect();
    files.sort();
    Ok(files)
}

/// Longest manifest, and longest file that one includes.
const LONGEST_FILE: u64 = 8 << 20;
/// Longest value that comes by reference. Looking for it in what tools say takes memory for each of its bytes.
const LONGEST_SECRET: usize = 16 << 10;

/// The variables that the program was started with, and the files that it can read.
#[derive(Clone, Default)]
pub struct Process(Environment);

impl Process {
    /// With these variables.
    pub fn new(environment: &Environment) -> Self {
        Self(environment.clone())
    }
}

impl Source for Process {
    fn env(&self, name: &str) -> Option<String> {
        self.0.text(name).map(str::to_owned)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        String::from_utf8(read_file(path)?).map_err(|error| Error::new(ErrorKind::InvalidData, error.utf8_error()))
    }
}

/// What is in a regular file that is not too long.
///
/// # Errors
/// As the file system says.
pub(crate) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    // A pipe or a device would be waited for, or never end.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE {
        let limit = ByteSize(LONGEST_FILE);
        return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {limit}")));
    }
    Ok(bytes)
}

/// Keys of a tool whose values callers see: a secret there would be public.
pub(super) const PUBLIC: [&str; 8] =
    ["description", "parameters", "input_schema", "output_schema", "annotations", "aliases", "tags", "context"];

/// What a reference to a variable comes to that is declared and not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Declared {
    /// Its default.
    Default(String),
    /// Nothing, and what refers to it is left out.
    Absent,
    /// Nothing, which is an error that was reported where the variable is declared.
    Missing,
}

/// A value that was left out.
pub(super) struct LeftOut {
    place: Place,
    path: String,
    variable: String,
}

/// Replaces references in a node.
pub(super) struct References<'a> {
    pub(super) source: &'a dyn Source,
    /// Relative file references start here.
    pub(super) base: &'a Path,
    /// Whose entry they stand in.
    pub(super) owner: Owner,
    /// Variables that are declared and not set.
    pub(super) declared: HashMap<String, Declared>,
    /// Every value that came in by reference.
    pub(super) secrets: BTreeSet<String>,
    /// Values that refer to a variable which is optional and not set.
    pub(super) left_out: Vec<LeftOut>,
}

/// What a text comes to.
enum Expanded {
    /// This text, and a warning about what only looks like a reference.
    Text(String, Option<String>),
    /// Nothing: this variable is absent.
    Absent(String),
}

/// Says of what was left out and is missed why it is not there; `before`: what was found until then. Something else that is wrong
/// is no reason to speak of it.
pub(super) fn explain(left_out: Vec<LeftOut>, before: usize, findings: &mut Findings) {
    let is_missed = |path: &str| {
        let around = path.rsplit_once('.').map_or("", |(around, _)| around);
        let mut since = findings.0[before..].iter().filter(|finding| finding.severity == Severity::Error);
        since.any(|finding| finding.path == path || finding.path == around)
    };
    let missed: Vec<LeftOut> = left_out.into_iter().filter(|one| is_missed(&one.path)).collect();
    for LeftOut { place, path, variable } in missed {
        let message = format!("left out, since {variable} is optional and not set: set it, or give it a default");
        findings.0.push(Finding::error(place, path, message).rule(Rule::MissingSecret));
    }
}

impl<'a> References<'a> {
    /// References among which no variable is declared.
    pub(super) fn new(source: &'a dyn Source, base: &'a Path, secrets: BTreeSet<String>) -> Self {
        Self { source, base, owner: Owner::Settings, declared: HashMap::new(), secrets, left_out: Vec::new() }
    }

    /// Replaces every reference below an entry, whose path is `under`. In a tool, not in what callers see.
    pub(super) fn resolve(&mut self, entry: &mut Node, under: &str, findings: &mut Findings) {
        self.resolve_below(entry, under, "", findings);
    }

    /// Replaces every reference below `node`; `own` is its path below the entry. False: the node itself refers to a variable that is
    /// absent, so it is to be left out.
    fn resolve_below(&mut self, node: &mut Node, under: &str, own: &str, findings: &mut Findings) -> bool {
        match &mut node.data {
            Data::Scalar(Value::String(text)) if text.contains("${") => {
                match self.expand(text, self.owner.reading(own)) {
                    Ok(Expanded::Text(expanded, warning)) => {
                        *text = expanded;
                        if let Some(message) = warning {
                            findings.warning(node, &[], under, message);
                        }
                    }
                    Ok(Expanded::Absent(variable)) => {
                        self.left_out.push(LeftOut { place: node.place.clone(), path: under.to_owned(), variable });
                        return false;
                    }
                    Err((rule, message)) => findings.error_of(rule, node, &[], under, message),
                }
            }
            Data::Scalar(_) => {}
            Data::List(items) => {
                let mut at = 0;
                items.retain_mut(|item| {
                    let token = [at.to_string()];
                    let (path, own) = (join(under, &token), join(own, &token));
                    at += 1;
                    self.resolve_below(item, &path, &own, findings) || self.keeps_place(item, &path, &own, findings)
                });
            }
            Data::Map(entries) => entries.retain_mut(|(key, value)| {
                let token = std::slice::from_ref(&key.text);
                let (path, below) = (join(under, token), join(own, token));
                if self.owner == Owner::Tool && own.is_empty() && PUBLIC.contains(&key.text.as_str()) {
                    let message = "callers see this; a reference to a secret cannot stand here";
                    refuse(value, &path, &["${env:", "${file:"], message, findings);
                    return true;
                }
                self.resolve_below(value, &path, &below, findings)
            }),
        }
        true
    }

    /// Whether an item that refers to an absent variable stays in its list all the same.
    fn keeps_place(&mut self, item: &mut Node, path: &str, own: &str, findings: &mut Findings) -> bool {
        match self.owner.absent_item(own) {
            AbsentItem::LeftOut => false,
            AbsentItem::Null => {
                item.data = Data::Scalar(Value::Null);
                true
            }
            AbsentItem::Refused => {
                // One sentence is enough.
                let variable = self.left_out.pop().map(|left_out| left_out.variable).unwrap_or_default();
                let message = format!(
                    "{variable} is optional and not set, so the items behind this one would take its place: give {variable} a \
                     default, or declare it with `required: true`"
                );
                findings.error_of(Rule::MissingSecret, item, &[], path, message);
                false
            }
        }
    }

    /// The text with its references replaced, for a place where it is read so.
    fn expand(&mut self, text: &str, reading: Reading) -> Result<Expanded, (Rule, String)> {
        let (mut out, mut rest, mut warning, mut missing) = (String::new(), text, None, Vec::new());
        let (mut absent, mut is_reported) = (None, false);
        let invalid = |message: &str| (Rule::Invalid, message.to_owned());
        while let Some(at) = rest.find("${") {
            // `$${` is a literal `${`.
            if at > 0 && rest.as_bytes()[at - 1] == b'$' {
                out.push_str(&rest[..at - 1]);
                out.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            out.push_str(&rest[..at]);
            let after = &rest[at + 2..];
            let Some((inside, tail)) = after.split_once('}') else {
                return Err((Rule::Invalid, "`${` without `}`; for a literal `${` write `$${`".into()));
            };
            match inside.split_once(':') {
                Some(("env", name)) => match (self.source.env(name), self.declared.get(name)) {
                    (Some(value), _) => {
                        let literal = reading.literal(&out, &value).map_err(invalid)?;
                        out.push_str(&literal);
                        self.secrets.insert(value);
                    }
                    (None, Some(Declared::Default(default))) => {
                        let literal = reading.literal(&out, default).map_err(invalid)?;
                        out.push_str(&literal);
                    }
                    (None, Some(Declared::Absent)) => absent = Some(name.to_owned()),
                    (None, Some(Declared::Missing)) => is_reported = true,
                    (None, None) => missing.push(format!("environment variable {name} is not set")),
                },
                Some(("file", path)) => match self.source.file(&self.base.join(path)) {
                    Ok(value) if value.len() > LONGEST_SECRET => {
                        missing.push(format!("file {path}: longer than {}", ByteSize(LONGEST_SECRET as u64)));
                    }
                    Ok(value) => {
                        // Files made by editors and by `echo` end in a line end that is no part of the secret.
                        let value = value.trim_end_matches(['\r', '\n']);
                        self.secrets.insert(value.to_owned());
                        out.push_str(&reading.literal(&out, value).map_err(invalid)?);
                    }
                    Err(error) => missing.push(format!("file {path}: {error}")),
                },
                _ => {
                    warning = Some(format!(
                        "`${{{inside}}}` is taken as it stands; references are ${{env:NAME}} and ${{file:/path}}, \
                         and `$${{` is a literal `${{`"
                    ));
                    out.push_str(&rest[at..at + 2 + inside.len() + 1]);
                }
            }
            rest = tail;
        }
        out.push_str(rest);
        if !missing.is_empty() {
            return Err((Rule::MissingSecret, missing.join("; ")));
        }
        if is_reported {
            return Ok(Expanded::Text(text.to_owned(), warning));
        }
        Ok(absent.map_or(Expanded::Text(out, warning), Expanded::Absent))
    }
}

/// Texts with one of these marks are errors; `$${` is still a literal.
pub(super) fn refuse(node: &mut Node, under: &str, marks: &[&str], message: &str, findings: &mut Findings) {
    match &mut node.data {
        Data::Scalar(Value::String(text)) => {
            if marks.iter().any(|mark| text.replace("$${", "").contains(mark)) {
                findings.error(node, &[], under, message);
            } else {
                *text = text.replace("$${", "${");
            }
        }
        Data::Scalar(_) => {}
        Data::List(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                refuse(item, &join(under, &[at.to_string()]), marks, message, findings);
            }
        }
        Data::Map(entries) => {
            for (key, value) in entries {
                refuse(value, &join(under, std::slice::from_ref(&key.text)), marks, message, findings);
            }
        }
    }
}
