//! `${env:NAME}` and `${file:/path}`: values that a manifest refers to instead of containing them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use rustix::fs::OFlags;
use serde_json::Value;

use super::caller_references;
use super::decode::Findings;
use super::finding::{Finding, Location, Severity, join_path};
use super::missing_secrets;
use super::node::{Data, Node};
use super::reference_context::{AbsentItem, EntryKind};
use super::rule::Rule;
use crate::access::callers::CallerSettings;
use crate::call::words;
use crate::environment::Environment;
use crate::kinds::literal;

/// Resolves references. It is a trait so that tests do not use the environment of the process.
pub trait ManifestInput {
    /// The value of an environment variable.
    fn env_var(&self, name: &str) -> Option<String>;

    /// The contents of a file.
    ///
    /// # Errors
    /// The error of the file system.
    fn read_text(&self, path: &Path) -> std::io::Result<String>;

    /// Whether references may lack their values, because only their form is checked.
    fn accepts_missing_secrets(&self) -> bool {
        false
    }

    /// Whether the file exists. It is read or run later.
    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    /// The files that match a pattern with `*` and the like, sorted.
    ///
    /// # Errors
    /// A sentence, if the pattern is invalid.
    fn matching_files(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        matching_files(pattern)
    }
}

/// The files that match a pattern, sorted. See [`ManifestInput::matching_files`].
pub(crate) fn matching_files(pattern: &str) -> Result<Vec<PathBuf>, String> {
    // As in shells, because names that begin with a dot are files of editors or hidden on purpose.
    let options = glob::MatchOptions {
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let found = glob::glob_with(pattern, options)
        .map_err(|error| format!("not a pattern: {}", error.msg))?;
    let mut files: Vec<PathBuf> = found.filter_map(Result::ok).collect();
    files.sort();
    Ok(files)
}

/// Maximum size of a manifest, and of an included file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum size of a value that comes by reference, in bytes. The search for it in tool output
/// takes memory for each byte.
const MAX_SECRET_BYTES: usize = 16 << 10;

/// Resolves references with the given variables and the files that the process can read.
#[derive(Clone, Default)]
pub struct ProcessInput {
    environment: Environment,
    accepts_missing_secrets: bool,
}

impl ProcessInput {
    /// Resolves references with these variables.
    pub fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            accepts_missing_secrets: false,
        }
    }

    /// Accepts references without values. A manifest that is read so can only be checked.
    #[must_use]
    pub fn without_secrets(self) -> Self {
        Self {
            accepts_missing_secrets: true,
            ..self
        }
    }
}

impl ManifestInput for ProcessInput {
    fn env_var(&self, name: &str) -> Option<String> {
        self.environment.get_text(name).map(str::to_owned)
    }

    fn accepts_missing_secrets(&self) -> bool {
        self.accepts_missing_secrets
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        String::from_utf8(read_file(path)?)
            .map_err(|error| Error::new(ErrorKind::InvalidData, error.utf8_error()))
    }
}

/// The content of a regular file of limited size.
///
/// # Errors
/// The error of the file system. A file that is too long or not regular is also an error.
pub(crate) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a pipe could block, and reading a device may never end.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = ByteSize(MAX_FILE_BYTES);
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("longer than {limit}"),
        ));
    }
    Ok(bytes)
}

/// Keys of a tool whose values callers see. A secret there would be public.
pub(super) const PUBLIC_KEYS: [&str; 8] =
    words("description parameters input_schema output_schema annotations aliases tags context");

/// The value of a reference to a variable that is declared and not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnsetVariable {
    /// The default of the variable.
    Default(String),
    /// No value. The text that refers to it is left out.
    Absent,
    /// No value. An error was reported where the variable is declared.
    Missing,
}

/// A value that was left out.
pub(super) struct OmittedValue {
    location: Location,
    path: String,
    variable: String,
}

/// Every value that replaced a reference.
#[derive(Default)]
pub(super) struct Secrets(RefCell<BTreeSet<String>>);

impl Secrets {
    pub(super) fn insert(&self, secret: String) {
        self.0.borrow_mut().insert(secret);
    }

    pub(super) fn extend(&self, secrets: impl IntoIterator<Item = String>) {
        self.0.borrow_mut().extend(secrets);
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.0.into_inner().into_iter().collect()
    }
}

/// Replaces references in a part of the manifest.
pub(super) struct References<'a> {
    pub(super) input: &'a dyn ManifestInput,
    /// The folder at which relative file references start.
    pub(super) base: &'a Path,
    /// The kind of entry that contains the references.
    pub(super) entry_kind: EntryKind,
    /// Variables that are declared and not set.
    pub(super) unset: HashMap<String, UnsetVariable>,
    /// The callers whose credentials the entry may refer to.
    pub(super) callers: &'a [CallerSettings],
    pub(super) secrets: &'a Secrets,
    pub(super) findings: &'a Findings,
    /// Values that were left out because they refer to an optional variable that is not set.
    pub(super) omitted: Vec<OmittedValue>,
}

/// A text after its references were replaced.
enum Expanded {
    /// The text, a warning if a part of it resembles a reference, and what has no value and need
    /// not have one.
    Text(String, Option<String>, Vec<String>),
    /// No text, because this variable is absent.
    Absent(String),
}

/// For each omitted value that causes an error, adds a finding that explains why the value is
/// absent. `before` is the number of findings before the entry was read. Errors in other positions
/// are unrelated to omitted values.
pub(super) fn explain_omitted_values(
    omitted: Vec<OmittedValue>,
    before: usize,
    findings: &Findings,
) {
    let is_missed = |one: &OmittedValue| {
        let around = one.path.rsplit_once('.').map_or("", |(around, _)| around);
        findings.has_error(before, |finding| {
            finding.path == one.path || finding.path == around
        })
    };
    let missed: Vec<OmittedValue> = omitted.into_iter().filter(is_missed).collect();
    for OmittedValue {
        location,
        path,
        variable,
    } in missed
    {
        let message = format!(
            "left out, since {variable} is optional and not set: set it, or give it a default"
        );
        findings.push(Finding::error(location, path, message).with_rule(Rule::MissingSecret));
    }
}

/// Whether the text at this path is sent as a header, which often holds a credential.
fn is_header_value(own: &str) -> bool {
    own.split('.').rev().nth(1) == Some("headers")
}

fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl<'a> References<'a> {
    /// Replaces references without declared variables.
    pub(super) fn new(
        input: &'a dyn ManifestInput,
        base: &'a Path,
        secrets: &'a Secrets,
        findings: &'a Findings,
    ) -> Self {
        Self {
            input,
            base,
            entry_kind: EntryKind::Settings,
            unset: HashMap::new(),
            callers: &[],
            secrets,
            findings,
            omitted: Vec::new(),
        }
    }

    /// Replaces every reference below `node`, whose path is `path`. In a tool, a reference below a
    /// key that callers see is an error. Returns the values that were left out.
    pub(super) fn resolve(mut self, node: &mut Node, path: &str) -> Vec<OmittedValue> {
        self.resolve_node(node, path, "");
        self.omitted
    }

    /// Replaces every reference below `node`. `own` is its path below the entry. Returns false if
    /// the node itself refers to an absent variable and must be left out.
    fn resolve_node(&mut self, node: &mut Node, path: &str, own: &str) -> bool {
        match &mut node.data {
            Data::Scalar(Value::String(text)) if text.contains("${") => {
                return self.resolve_text(node, path, own);
            }
            Data::Scalar(Value::String(text)) if text.contains('$') => {
                if let Some(name) = self.entry_kind.shell_variable(own, text) {
                    let message =
                        format!("`${name}` stays as it is: a reference is `${{env:{name}}}`");
                    let entry = self.findings.entry(node, path);
                    entry.report::<&str>(Severity::Warning, Rule::ShellVariable, &[], message);
                }
            }
            Data::Scalar(_) => {}
            Data::List(items) => {
                let mut at = 0;
                items.retain_mut(|item| {
                    let token = [at.to_string()];
                    let (path, own) = (join_path(path, &token), join_path(own, &token));
                    at += 1;
                    self.resolve_node(item, &path, &own) || self.keep_absent_item(item, &path, &own)
                });
            }
            Data::Map(entries) => entries.retain_mut(|(key, value)| {
                let (path, below) = (join_path(path, &[&key.text]), join_path(own, &[&key.text]));
                let is_tool = self.entry_kind == EntryKind::Tool;
                // Callers can see a condition. Its own reader refuses references there.
                if is_tool && below == "cache.when" {
                    return true;
                }
                if is_tool && own.is_empty() && PUBLIC_KEYS.contains(&key.text.as_str()) {
                    refuse_references(value, &path, &SECRET_MARKS, PUBLIC_MESSAGE, self.findings);
                    return true;
                }
                self.resolve_node(value, &path, &below)
            }),
        }
        true
    }

    fn resolve_text(&mut self, node: &mut Node, path: &str, own: &str) -> bool {
        match self.expand(node.as_str().unwrap_or_default(), own) {
            Ok(Expanded::Text(expanded, warning, unset)) => {
                node.data = Data::Scalar(expanded.into());
                let entry = self.findings.entry(node, path);
                if let Some(message) = warning {
                    entry.warning::<&str>(&[], message);
                }
                for what in unset {
                    self.findings
                        .push(missing_secrets::unchecked_value(node, path, &what));
                }
            }
            Ok(Expanded::Absent(variable)) => {
                self.omitted.push(OmittedValue {
                    location: node.location.clone(),
                    path: path.to_owned(),
                    variable,
                });
                return false;
            }
            Err((rule, message)) => {
                let entry = self.findings.entry(node, path);
                entry.report::<&str>(Severity::Error, rule, &[], message);
            }
        }
        true
    }

    /// Whether an item that refers to an absent variable stays in its list.
    fn keep_absent_item(&mut self, item: &mut Node, path: &str, own: &str) -> bool {
        match self.entry_kind.absent_item(own) {
            AbsentItem::LeftOut => false,
            AbsentItem::Null => {
                item.data = Data::Scalar(Value::Null);
                true
            }
            AbsentItem::Refused => {
                // This error replaces the explanation that the omitted value would get later.
                let omitted = self.omitted.pop();
                let variable = omitted.map(|omitted| omitted.variable).unwrap_or_default();
                let message = format!(
                    "{variable} is optional and not set, so the following items would move to its position: give \
                     {variable} a default, or declare it with `required: true`"
                );
                let entry = self.findings.entry(item, path);
                entry.report::<&str>(Severity::Error, Rule::MissingSecret, &[], message);
                false
            }
        }
    }

    /// Replaces the references in the text at `own`, the path below the entry.
    fn expand(&self, text: &str, own: &str) -> Result<Expanded, (Rule, String)> {
        // Defines how the text is read afterwards.
        let text_kind = self.entry_kind.text_kind(own);
        let is_url = own.ends_with("url");
        let (mut out, mut rest, mut warning, mut missing) = (String::new(), text, None, Vec::new());
        let (mut absent, mut is_reported, mut unset) = (None, false, Vec::new());
        let accepts_missing = self.input.accepts_missing_secrets();
        let invalid = |message: String| (Rule::Invalid, message);
        let embed = |out: &mut String, value: &str| {
            let text = text_kind.embed_value(out, value);
            let text = text.map_err(|message| invalid(message.to_owned()))?;
            out.push_str(&text);
            Ok(())
        };
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
                let message = "`${` without `}`; for a literal `${` write `$${`";
                return Err(invalid(message.to_owned()));
            };
            match inside.split_once(':') {
                Some(("env", name)) => match (self.input.env_var(name), self.unset.get(name)) {
                    (Some(value), _) => {
                        embed(&mut out, &literal::remove_caller_references(&value))?;
                        self.secrets.insert(value);
                    }
                    (None, Some(UnsetVariable::Default(default))) => embed(&mut out, default)?,
                    (None, Some(UnsetVariable::Absent)) => absent = Some(name.to_owned()),
                    (None, _) if accepts_missing => {
                        missing_secrets::check_variable_name(name).map_err(invalid)?;
                        let literal = missing_secrets::placeholder(name, is_url && out.is_empty());
                        embed(&mut out, &literal)?;
                        unset.push(format!("environment variable {name} is not set"));
                    }
                    (None, Some(UnsetVariable::Missing)) => is_reported = true,
                    (None, None) => missing.push(format!("environment variable {name} is not set")),
                },
                Some(("file", path)) => match self.input.read_text(&self.base.join(path)) {
                    Ok(value) if value.len() > MAX_SECRET_BYTES => {
                        missing.push(format!(
                            "file {path}: longer than {}",
                            ByteSize(MAX_SECRET_BYTES as u64)
                        ));
                    }
                    Ok(value) => {
                        // Editors and `echo` add a line end to a file. It is not part of the
                        // secret.
                        let value = value.trim_end_matches(['\r', '\n']);
                        self.secrets.insert(value.to_owned());
                        embed(&mut out, &literal::remove_caller_references(value))?;
                    }
                    Err(_) if accepts_missing && !path.trim().is_empty() => {
                        let literal = missing_secrets::placeholder(path, is_url && out.is_empty());
                        embed(&mut out, &literal)?;
                        unset.push(format!("file {path} cannot be read here"));
                    }
                    Err(error) => missing.push(format!("file {path}: {error}")),
                },
                Some(("caller", name)) => {
                    let reference =
                        caller_references::resolve(name, self.entry_kind, own, self.callers);
                    embed(&mut out, "")?;
                    out.push_str(&reference.map_err(invalid)?);
                }
                None if is_header_value(own) && is_variable_name(inside) => {
                    return Err(invalid(format!(
                        "`${{{inside}}}` is not a reference: write `${{env:{inside}}}`"
                    )));
                }
                _ => {
                    warning = Some(format!(
                        "`${{{inside}}}` is not a reference and stays as text; references are ${{env:NAME}}, \
                         ${{file:/path}} and ${{caller:NAME}}, and `$${{` is a literal `${{`"
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
            return Ok(Expanded::Text(text.to_owned(), warning, Vec::new()));
        }
        Ok(absent.map_or(Expanded::Text(out, warning, unset), Expanded::Absent))
    }
}

/// What begins references whose values are secret.
pub(super) const SECRET_MARKS: [&str; 3] = ["${env:", "${file:", "${caller:"];
/// Why they are refused where callers see the text.
pub(super) const PUBLIC_MESSAGE: &str =
    "callers can see this, so a reference to a secret is not allowed here";

/// Reports texts with one of these marks as errors. `$${` is still a literal.
pub(super) fn refuse_references(
    node: &mut Node,
    path: &str,
    marks: &[&str],
    message: &str,
    findings: &Findings,
) {
    match &mut node.data {
        Data::Scalar(Value::String(text)) => {
            let without_literals = text.replace("$${", "");
            if marks.iter().any(|mark| without_literals.contains(mark)) {
                findings.entry(node, path).own_error(message);
            } else {
                *text = text.replace("$${", "${");
            }
        }
        Data::Scalar(_) => {}
        Data::List(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let path = join_path(path, &[at.to_string()]);
                refuse_references(item, &path, marks, message, findings);
            }
        }
        Data::Map(entries) => {
            for (key, value) in entries {
                let path = join_path(path, &[&key.text]);
                refuse_references(value, &path, marks, message, findings);
            }
        }
    }
}
