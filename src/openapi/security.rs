//! The credentials that operations need, and whether the operator gives them.

use serde_json::Value;

use super::Options;
use super::document::Document;
use crate::call::JsonObject;

/// A sentence for each way to satisfy the operation's security, if the operator's settings satisfy none of them.
pub(super) fn missing(document: &Document, operation: &JsonObject, options: &Options) -> Option<String> {
    let declared = operation.get("security").or_else(|| document.get("security"))?.as_array()?;
    let mut ways = Vec::new();
    for requirement in declared {
        let names: Vec<&str> = requirement.as_object()?.keys().map(String::as_str).collect();
        let lacking: Vec<String> = names.iter().filter_map(|name| lacks(document, name, options)).collect();
        if lacking.is_empty() {
            return None;
        }
        ways.push(lacking.join(" and "));
    }
    ways.dedup();
    (!ways.is_empty()).then(|| ways.join(", or "))
}

/// What must be written for a scheme; `None` if it is there.
fn lacks(document: &Document, name: &str, options: &Options) -> Option<String> {
    let scheme = document
        .get("components")
        .and_then(|components| components.get("securitySchemes")?.get(name))
        .and_then(|scheme| document.resolve(scheme).ok())?;
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let variable: String = format!("{name}_SECRET")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    let has_header = |header: &str| options.headers.iter().any(|given| given.eq_ignore_ascii_case(header));
    match (text("type"), text("in")) {
        ("apiKey", "header") if has_header(text("name")) => None,
        ("apiKey", "query") if options.query.iter().any(|given| given == text("name")) => None,
        ("apiKey", "cookie") if has_header("cookie") => None,
        ("http" | "oauth2" | "openIdConnect", _) if has_header("authorization") || options.has_auth => None,
        ("mutualTLS", _) => None,
        ("apiKey", "query") => Some(format!("`{name}`: write `query: {{{}: \"${{env:{variable}}}\"}}`", text("name"))),
        ("apiKey", "cookie") => {
            Some(format!("`{name}`: write `headers: {{cookie: \"{}=${{env:{variable}}}\"}}`", text("name")))
        }
        ("apiKey", _) => Some(format!("`{name}`: write `headers: {{{}: \"${{env:{variable}}}\"}}`", text("name"))),
        ("http", _) if text("scheme").eq_ignore_ascii_case("basic") => Some(format!(
            "`{name}`: write `headers: {{authorization: \"Basic ${{env:{variable}}}\"}}`, with base64 of user:password"
        )),
        ("oauth2", _) if scheme.pointer("/flows/clientCredentials").is_some() => {
            let url = scheme.pointer("/flows/clientCredentials/tokenUrl").and_then(Value::as_str).unwrap_or_default();
            Some(format!(
                "`{name}`: write `auth: {{oauth: {{token_url: \"{url}\", client_id: …, client_secret: \"${{env:{variable}}}\"}}}}`"
            ))
        }
        _ => Some(format!("`{name}`: write `headers: {{authorization: \"Bearer ${{env:{variable}}}\"}}`")),
    }
}
