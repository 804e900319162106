//! Checks the keys of an entry of `mcp_servers:` that say how the server is reached.

use std::collections::BTreeMap;
use std::path::Path;

use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::source_tools::{EntryChecks, absolute_path};
use crate::access::callers::CallerSettings;
use crate::kinds::http::AuthConfig;
use crate::kinds::literal;
use crate::sources::mcp::{Mode, PerCaller, Transport};
use crate::text::suggest;

/// Header fields that the connection sets itself. The second constant is the prefix of the
/// protocol's own fields.
const RESERVED_HEADERS: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
    "upgrade",
];
const PROTOCOL_PREFIX: &str = "mcp-";

impl EntryChecks<'_> {
    /// Reads `mode`.
    pub(super) fn parse_mode(&mut self, word: Option<&str>) -> Option<Mode> {
        match word {
            None => Some(Mode::default()),
            Some("persistent") => Some(Mode::Persistent),
            Some("on_demand") => Some(Mode::OnDemand),
            Some(other) => {
                let known = ["persistent", "on_demand"];
                let message = match suggest::closest_name(other, known, suggest::MIN_HINT_RATIO) {
                    Some(near) => format!("unknown mode, did you mean {near}?"),
                    None => format!("unknown mode; there are {}", known.join(" and ")),
                };
                self.error("mode", &message);
                None
            }
        }
    }

    /// Reads `command`, with the environment of the program. A relative path of the program starts at
    /// `base`, the manifest's folder.
    pub(super) fn check_command(
        &mut self,
        mut argv: Vec<String>,
        environment: BTreeMap<String, String>,
        (base, workdir): (&Path, &Path),
        exists: &dyn Fn(&Path) -> bool,
    ) -> Option<Transport> {
        let Some(program) = argv
            .first_mut()
            .filter(|program| !program.trim().is_empty())
        else {
            self.error(
                "command",
                "a program and its arguments are expected here, e.g. [npx, -y, some-mcp-server]",
            );
            return None;
        };
        if program.contains('/') {
            *program = self
                .existing_file("command", base, program, exists)?
                .to_string_lossy()
                .into_owned();
        }
        if argv.iter().any(|item| item.contains('\0')) {
            self.error("command", "an argument must not contain a NUL character");
        }
        for (name, value) in &environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.error_below(
                    "environment",
                    name,
                    "a variable's name must not be empty and must not contain `=`",
                );
            } else if value.contains('\0') {
                self.error_below(
                    "environment",
                    name,
                    "a value must not contain a NUL character",
                );
            }
        }
        Some(Transport::Command {
            argv,
            environment,
            workdir: absolute_path(workdir),
        })
    }

    /// Reads `url` and what requests to it carry.
    pub(super) fn check_url(
        &mut self,
        text: &str,
        headers: BTreeMap<String, String>,
        auth: Option<AuthConfig>,
    ) -> Option<Transport> {
        let (mut fields, mut own_fields) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            if HeaderName::try_from(&lower).is_err() {
                self.error_below(
                    "headers",
                    &name,
                    "this is not a valid name of a header field",
                );
            } else if RESERVED_HEADERS.contains(&lower.as_str())
                || lower.starts_with(PROTOCOL_PREFIX)
            {
                self.error_below(
                    "headers",
                    &name,
                    "this header field is set by the service itself",
                );
            } else if HeaderValue::try_from(&value).is_err() {
                self.error_below(
                    "headers",
                    &name,
                    "a header field holds one line of plain text",
                );
            } else if fields.contains_key(&lower) || own_fields.contains_key(&lower) {
                self.error_below(
                    "headers",
                    &name,
                    "this header field is used twice: upper and lower case are the \
                                                    same",
                );
            } else if let Some(template) = PerCaller::parse(&value) {
                own_fields.insert(lower, template);
            } else {
                fields.insert(lower, value);
            }
        }
        let text = text.trim();
        let own_url = PerCaller::parse(text);
        // With the names of the credentials in place of their values.
        let url = match Url::parse(&literal::remove_caller_references(text)) {
            Ok(url) => url,
            Err(error) => {
                let message =
                    format!("not a URL ({error}); write a URL such as https://mcp.example.com/mcp");
                self.error("url", &message);
                return None;
            }
        };
        if !matches!(url.scheme(), "http" | "https") {
            self.error(
                "url",
                "only http and https are supported; for a program write `command`",
            );
        } else if !url.username().is_empty() || url.password().is_some() {
            self.error(
                "url",
                "a name or a password in a URL ends up in logs: send it in `headers`, by reference",
            );
        } else if url.fragment().is_some() {
            self.error("url", "the part after # is never sent: leave it out");
        } else if own_url.is_some() && literal::has_caller_reference(authority_of(text)) {
            self.error(
                "url",
                "a caller's credential cannot stand in the host: only in path and query",
            );
        } else {
            let per_caller = (own_url.is_some() || !own_fields.is_empty()).then(|| {
                Box::new(PerCaller {
                    url: own_url,
                    headers: own_fields,
                    list_as: None,
                })
            });
            return Some(Transport::Url {
                url,
                headers: fields,
                auth,
                per_caller,
            });
        }
        None
    }

    /// Sets the credentials that list the tools: those of the caller with the name `list_as`.
    pub(super) fn add_listing_caller(
        &mut self,
        mut transport: Transport,
        list_as: Option<&str>,
        callers: &[CallerSettings],
    ) -> Transport {
        let Transport::Url { per_caller, .. } = &mut transport else {
            return transport;
        };
        match (per_caller, list_as) {
            (None, None) => {}
            (None, Some(_)) => {
                self.error(
                    "list_as",
                    "has no meaning here: neither `headers` nor `url` has `${caller:NAME}`",
                );
            }
            (Some(parts), None) if parts.url.is_some() => {
                let message = "the URL has a credential of the caller, so write `list_as` with the name of the caller \
                               whose credentials list the tools";
                self.error("url", message);
            }
            (Some(_), None) => {}
            (Some(parts), Some(name)) => match callers.iter().find(|caller| caller.name == name) {
                Some(caller) => {
                    let own = &caller.credentials;
                    if let Some(missing) = parts
                        .credential_names()
                        .iter()
                        .find(|name| own.get(name).is_none())
                    {
                        self.error(
                            "list_as",
                            &format!("the caller `{name}` has no credential `{missing}`"),
                        );
                    }
                    parts.list_as = Some(own.clone());
                }
                None => {
                    let names = callers.iter().map(|caller| caller.name.as_str());
                    let message = match suggest::closest_name(name, names, suggest::MIN_HINT_RATIO)
                    {
                        Some(near) => {
                            format!("there is no caller `{name}`, did you mean `{near}`?")
                        }
                        None => format!("there is no caller `{name}`"),
                    };
                    self.error("list_as", &message);
                }
            },
        }
        transport
    }

    fn error_below(&mut self, key: &str, name: &str, message: &str) {
        self.findings.error(
            self.node,
            &[key.to_owned(), name.to_owned()],
            self.entry_path,
            message,
        );
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
