//! The base URL of operations.

use serde_json::Value;
use url::Url;

use super::Options;
use super::document::Document;
use crate::call::JsonObject;

/// The base URL of an operation, without a `/` at its end.
///
/// # Errors
/// A sentence: there is no usable server, or the operation has a server of its own that the operator did not allow.
pub(super) fn base(
    document: &Document,
    path_item: &JsonObject,
    operation: &JsonObject,
    options: &Options,
) -> Result<String, String> {
    if let Some(base) = &options.base_url {
        return Ok(base.trim_end_matches('/').into());
    }
    let first = first(document.get("servers"), options)
        .unwrap_or_else(|| absolute("/", options).map_err(|_| "the document names no server: write `base_url`".into()));
    let own = operation.get("servers").or_else(|| path_item.get("servers"));
    let base = match self::first(own, options) {
        None => first?,
        Some(own) => {
            let own = own?;
            let is_same = first.as_ref().is_ok_and(|first| first.origin() == own.origin());
            // Otherwise the document would choose which host gets the operator's credentials.
            if !is_same && !own.host_str().is_some_and(|host| options.allow_hosts.iter().any(|allowed| allowed == host))
            {
                let host = own.host_str().unwrap_or_default();
                return Err(format!("it has a server of its own, `{host}`: write this host in `allow_hosts`"));
            }
            own
        }
    };
    Ok(base.as_str().trim_end_matches('/').into())
}

/// The first server of a list, with the defaults of its variables.
fn first(servers: Option<&Value>, options: &Options) -> Option<Result<Url, String>> {
    let server = servers?.as_array()?.first()?;
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let default = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), default);
    }
    Some(absolute(&url, options))
}

fn absolute(url: &str, options: &Options) -> Result<Url, String> {
    let absolute = match &options.document_url {
        Some(base) => base.join(url).ok(),
        None => Url::parse(url).ok(),
    };
    let absolute = absolute.filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none());
    absolute.ok_or_else(|| format!("the document's server `{url}` is not a whole URL: write `base_url`"))
}
