//! Checks the keys of an entry of `mcp_servers:` that say how the server is reached.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::source_tools::{Source, absolute_path};
use crate::call::words;
use crate::kinds::SandboxSetting;
use crate::kinds::http::AuthConfig;
use crate::kinds::literal;
use crate::sources::mcp::{Mode, PerCaller, Transport};
use crate::text::suggest;

/// Header fields that the connection sets itself. The second constant is the prefix of the
/// protocol's own fields.
const RESERVED_HEADERS: [&str; 8] = words(
    "accept connection content-length content-type host last-event-id transfer-encoding
     upgrade",
);
const PROTOCOL_PREFIX: &str = "mcp-";

impl Source<'_> {
    /// Reads `mode`.
    pub(super) fn read_mode(&self, word: Option<&str>) -> Option<Mode> {
        match word {
            None => Some(Mode::default()),
            Some("persistent") => Some(Mode::Persistent),
            Some("on_demand") => Some(Mode::OnDemand),
            Some(other) => {
                let known = ["persistent", "on_demand"];
                let message = match suggest::near_name(other, known) {
                    Some(near) => format!("unknown mode, did you mean {near}?"),
                    None => format!("unknown mode; there are {}", known.join(" and ")),
                };
                self.error("mode", message);
                None
            }
        }
    }

    /// Reads `command`, with the environment of the program. Relative paths start at the manifest's
    /// folder.
    pub(super) fn read_command(
        &self,
        mut argv: Vec<String>,
        environment: BTreeMap<String, String>,
        workdir: Option<PathBuf>,
        sandbox: Option<SandboxSetting>,
    ) -> Option<Transport> {
        let program = argv.first_mut();
        let Some(program) = program.filter(|program| !program.trim().is_empty()) else {
            let message =
                "a program and its arguments are expected here, e.g. [npx, -y, some-mcp-server]";
            self.error("command", message);
            return None;
        };
        if program.contains('/') {
            let path = self.existing_file("command", program)?;
            *program = path.to_string_lossy().into_owned();
        }
        if argv.iter().any(|item| item.contains('\0')) {
            self.error("command", "an argument must not contain a NUL character");
        }
        for (name, value) in &environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = "a variable's name must not be empty and must not contain `=`";
                self.entry.error(&["environment", name], message);
            } else if value.contains('\0') {
                let message = "a value must not contain a NUL character";
                self.entry.error(&["environment", name], message);
            }
        }
        let base = self.inputs.base;
        let workdir = workdir.map_or_else(|| base.to_owned(), |folder| base.join(folder));
        Some(Transport::Command {
            argv,
            environment,
            workdir: absolute_path(&workdir),
            sandbox: self.inputs.sandboxes.setting(sandbox, base),
        })
    }

    /// Reads `url` and what requests to it carry.
    pub(super) fn read_url(
        &self,
        text: &str,
        headers: BTreeMap<String, String>,
        auth: Option<AuthConfig>,
    ) -> Option<Transport> {
        let (mut fields, mut own_fields) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            let is_reserved = RESERVED_HEADERS.contains(&lower.as_str());
            let message = if HeaderName::try_from(&lower).is_err() {
                "this is not a valid name of a header field"
            } else if is_reserved || lower.starts_with(PROTOCOL_PREFIX) {
                "this header field is set by the service itself"
            } else if HeaderValue::try_from(&value).is_err() {
                "a header field holds one line of plain text"
            } else if fields.contains_key(&lower) || own_fields.contains_key(&lower) {
                "this header field is used twice: upper and lower case are the same"
            } else {
                match PerCaller::parse(&value) {
                    Some(template) => drop(own_fields.insert(lower, template)),
                    None => drop(fields.insert(lower, value)),
                }
                continue;
            };
            self.entry.error(&["headers", &name], message);
        }
        let text = text.trim();
        let own_url = PerCaller::parse(text);
        // With the names of the credentials in place of their values.
        let url = match Url::parse(&literal::remove_caller_references(text)) {
            Ok(url) => url,
            Err(error) => {
                let message =
                    format!("not a URL ({error}); write a URL such as https://mcp.example.com/mcp");
                self.error("url", message);
                return None;
            }
        };
        let fault = if !matches!(url.scheme(), "http" | "https") {
            "only http and https are supported; for a program write `command`"
        } else if !url.username().is_empty() || url.password().is_some() {
            "a name or a password in a URL ends up in logs: send it in `headers`, by reference"
        } else if url.fragment().is_some() {
            "the part after # is never sent: leave it out"
        } else if own_url.is_some() && literal::has_caller_reference(authority_of(text)) {
            "a caller's credential cannot stand in the host: only in path and query"
        } else {
            let per_caller = PerCaller {
                url: own_url,
                headers: own_fields,
                list_as: None,
            };
            let is_per_caller = per_caller.url.is_some() || !per_caller.headers.is_empty();
            return Some(Transport::Url {
                url,
                headers: fields,
                auth,
                per_caller: is_per_caller.then(|| Box::new(per_caller)),
            });
        };
        self.error("url", fault);
        None
    }

    /// Sets the credentials that list the tools: those of the caller with the name `list_as`.
    pub(super) fn add_listing_caller(
        &self,
        mut transport: Transport,
        list_as: Option<&str>,
    ) -> Transport {
        let Transport::Url { per_caller, .. } = &mut transport else {
            return transport;
        };
        let callers = self.inputs.callers;
        match (per_caller, list_as) {
            (None, Some(_)) => {
                let message =
                    "has no meaning here: neither `headers` nor `url` has `${caller:NAME}`";
                self.error("list_as", message);
            }
            (Some(parts), None) if parts.url.is_some() => {
                let message = "the URL has a credential of the caller, so write `list_as` with the name of the caller \
                               whose credentials list the tools";
                self.error("url", message);
            }
            (_, None) => {}
            (Some(parts), Some(name)) => match callers.iter().find(|caller| caller.name == name) {
                Some(caller) => {
                    let own = &caller.credentials;
                    let names = parts.credential_names();
                    if let Some(missing) = names.iter().find(|name| own.get(name).is_none()) {
                        let message = format!("the caller `{name}` has no credential `{missing}`");
                        self.error("list_as", message);
                    }
                    parts.list_as = Some(own.clone());
                }
                None => {
                    let names = callers.iter().map(|caller| caller.name.as_str());
                    let near = suggest::near_name(name, names);
                    let near = near.map(|near| format!(", did you mean `{near}`?"));
                    let near = near.unwrap_or_default();
                    self.error("list_as", format!("there is no caller `{name}`{near}"));
                }
            },
        }
        transport
    }
}

/// Scheme, host and port of the text of a URL.
fn authority_of(text: &str) -> &str {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..]
        .find(['/', '?', '#'])
        .map_or(text.len(), |at| start + at);
    &text[..end]
}
