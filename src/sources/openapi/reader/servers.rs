//! The base URL of operations.

use serde_json::Value;
use url::Url;

use super::Options;
use super::document::{Document, Members};
use crate::call::JsonObject;

/// The base URL of an operation, without a `/` at its end.
///
/// # Errors
/// A sentence: there is no usable server, or the operation has a server of its own that the
/// operator did not allow.
pub(super) fn find_base_url(
    document: &Document,
    path_item: &JsonObject,
    operation: &JsonObject,
    options: &Options,
) -> Result<String, String> {
    if let Some(base) = &options.base_url {
        return Ok(base.trim_end_matches('/').into());
    }
    let first = read_first(document.get("servers"), options).unwrap_or_else(|| {
        make_absolute("/", options)
            .map_err(|_| "the document names no server: write `base_url`".into())
    })?;
    // A document that is read again from a URL must not be able to lead the operator's credentials
    // to another host.
    if options
        .document_url
        .as_ref()
        .is_some_and(|document| document.origin() != first.origin())
    {
        allow_host(
            &first,
            options,
            "the document's server is `{host}`, which is not the document's own host: write `base_url`",
        )?;
    }
    let own = operation
        .get("servers")
        .or_else(|| path_item.get("servers"));
    let base = match read_first(own, options) {
        None => first,
        Some(own) => {
            let own = own?;
            if first.origin() != own.origin() {
                allow_host(
                    &own,
                    options,
                    "it has a server of its own, `{host}`: write this host in `allow_hosts`",
                )?;
            }
            own
        }
    };
    Ok(base.as_str().trim_end_matches('/').into())
}

/// Refuses a host that the operator has not allowed.
fn allow_host(url: &Url, options: &Options, refusal: &str) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default();
    match options.allow_hosts.iter().any(|allowed| allowed == host) {
        true => Ok(()),
        false => Err(refusal.replace("{host}", host)),
    }
}

/// The first server of a list, with the defaults of its variables.
fn read_first(servers: Option<&Value>, options: &Options) -> Option<Result<Url, String>> {
    let server = servers?.as_array()?.first()?;
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.entries("variables") {
        let default = variable.text("default").unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), default);
    }
    Some(make_absolute(&url, options))
}

fn make_absolute(url: &str, options: &Options) -> Result<Url, String> {
    let url = &if url.starts_with("//") {
        format!("https:{url}")
    } else {
        url.to_owned()
    };
    let absolute = match &options.document_url {
        Some(base) => base.join(url).ok(),
        None => Url::parse(url).ok(),
    };
    let absolute =
        absolute.filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none());
    absolute.ok_or_else(|| {
        format!("the document's server `{url}` is not a whole URL: write `base_url`")
    })
}
