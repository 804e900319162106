//! All wanted operations of a document.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::document::Members;
use super::{Document, Import, LeftOut, Options, Selector, names, operation, servers};
use crate::call::JsonObject;

const METHODS: [&str; 7] = ["get", "head", "post", "put", "patch", "delete", "options"];

/// Turns the wanted operations of a document into tools.
pub fn import(document: &Document, options: &Options) -> Import {
    let mut import = Import::default();
    let mut names = HashSet::new();
    let mut unused: Vec<&Selector> = options.include.iter().chain(&options.exclude).collect();
    let mut imported = Vec::new();
    let paths = document.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        let item = match document.resolve(item) {
            Ok(item) => item.as_object(),
            Err(reason) => {
                let warning = format!("the path {path} is left out: {reason}");
                import.warnings.push(warning);
                continue;
            }
        };
        for (method, written) in item.into_iter().flatten() {
            let (Some(item), Some(fields)) = (item, written.as_object()) else {
                continue;
            };
            if !METHODS.contains(&method.as_str()) {
                continue;
            }
            import.found += 1;
            let id = fields.text("operationId");
            let tags: Vec<&str> = fields.items("tags").filter_map(Value::as_str).collect();
            let matches = |selector: &Selector| selector.matches(method, path, id, &tags);
            unused.retain(|selector| !matches(selector));
            let is_wanted = options.include.is_empty() || options.include.iter().any(matches);
            if !is_wanted || options.exclude.iter().any(matches) {
                continue;
            }
            let name = names::make_distinct(names::name_operation(id, method, path), &mut names);
            match operation::build_operation(document, options, &name, (method, path), item, fields)
            {
                Ok(operation) => {
                    imported.push(fields);
                    import.operations.push(operation);
                }
                Err(reason) => import.left_out.push(LeftOut {
                    name,
                    operation: operation::shown_operation(method, path),
                    reason,
                }),
            }
        }
    }
    import.warnings.extend(
        unused
            .iter()
            .map(|selector| format!("`{}` matches no operation", selector.as_str())),
    );
    import
        .warnings
        .extend(missing_credentials(document, &imported, options));
    import
}

/// The scopes that operations require, by the name of the security scheme.
type Scopes<'d> = BTreeMap<&'d str, BTreeSet<&'d str>>;

/// A sentence for each set of credentials that operations need and the operator does not give.
fn missing_credentials(
    document: &Document,
    operations: &[&JsonObject],
    options: &Options,
) -> Vec<String> {
    let requirements = |operation| requirements(document, operation);
    let mut scopes = Scopes::new();
    for (name, required) in operations
        .iter()
        .flat_map(|operation| requirements(operation))
        .flatten()
    {
        let required = required
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        scopes.entry(name).or_default().extend(required);
    }
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for operation in operations {
        if let Some(sentence) = missing_way(document, &requirements(operation), &scopes, options) {
            *missing.entry(sentence).or_default() += 1;
        }
    }
    let with_count = |(sentence, count)| {
        let operations = if count == 1 {
            "1 operation needs".into()
        } else {
            format!("{count} operations need")
        };
        format!("{operations} credentials that are not given: {sentence}")
    };
    missing.into_iter().map(with_count).collect()
}

/// The ways to satisfy the operation's security. Each requires all its schemes.
fn requirements<'d>(document: &'d Document, operation: &'d JsonObject) -> Vec<&'d JsonObject> {
    let declared = operation
        .get("security")
        .or_else(|| document.get("security"))
        .and_then(Value::as_array);
    declared
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect()
}

/// What is missing for each way. `None` if one of the ways is satisfied.
fn missing_way(
    document: &Document,
    requirements: &[&JsonObject],
    scopes: &Scopes<'_>,
    options: &Options,
) -> Option<String> {
    let mut ways = Vec::new();
    for requirement in requirements {
        let missing: Vec<String> = requirement
            .keys()
            .filter_map(|name| missing_scheme(document, name, scopes, options))
            .collect();
        if missing.is_empty() {
            return None;
        }
        ways.push(missing.join(" and "));
    }
    ways.dedup();
    (!ways.is_empty()).then(|| ways.join(", or "))
}

/// What must be written for a scheme; `None` if it is there.
fn missing_scheme(
    document: &Document,
    name: &str,
    scopes: &Scopes<'_>,
    options: &Options,
) -> Option<String> {
    let scheme = document
        .get("components")
        .and_then(|components| components.get("securitySchemes")?.get(name))
        .and_then(|scheme| document.resolve(scheme).ok())?;
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let variable = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let variable = format!("{}_SECRET", variable.to_ascii_uppercase());
    let has_header = |header: &str| {
        options
            .headers
            .iter()
            .any(|given| given.eq_ignore_ascii_case(header))
    };
    match (text("type"), text("in")) {
        ("apiKey", "header") if has_header(text("name")) => None,
        ("apiKey", "query") if options.query.iter().any(|given| given == text("name")) => None,
        ("apiKey", "cookie") if has_header("cookie") => None,
        ("http" | "oauth2" | "openIdConnect", _)
            if has_header("authorization") || options.has_auth =>
        {
            None
        }
        ("mutualTLS", _) => None,
        ("apiKey", "query") => Some(format!(
            "`{name}`: write `query: {{{}: \"${{env:{variable}}}\"}}`",
            text("name")
        )),
        ("apiKey", "cookie") => Some(format!(
            "`{name}`: write `headers: {{cookie: \"{}=${{env:{variable}}}\"}}`",
            text("name")
        )),
        ("apiKey", _) => Some(format!(
            "`{name}`: write `headers: {{{}: \"${{env:{variable}}}\"}}`",
            text("name")
        )),
        ("http", _) if text("scheme").eq_ignore_ascii_case("basic") => Some(format!(
            "`{name}`: write `auth: {{basic: {{username: …, password: \"${{env:{variable}}}\"}}}}`"
        )),
        ("oauth2", _) if scheme.pointer("/flows/clientCredentials").is_some() => {
            let url = scheme.pointer("/flows/clientCredentials/tokenUrl");
            let url = url.and_then(Value::as_str).unwrap_or_default();
            let url = resolve_url(document, url, options);
            let scopes: Vec<&str> = scopes.get(name).into_iter().flatten().copied().collect();
            let scopes = if scopes.is_empty() {
                String::new()
            } else {
                format!(", scopes: [{}]", scopes.join(", "))
            };
            Some(format!(
                "`{name}`: write `auth: {{oauth: {{token_url: \"{url}\", client_id: …, client_secret: \"${{env:{variable}}}\"{scopes}}}}}`"
            ))
        }
        _ => Some(format!(
            "`{name}`: write `headers: {{authorization: \"Bearer ${{env:{variable}}}\"}}`"
        )),
    }
}

/// The URL of a token endpoint, which may be relative to the server. The operator copies it into
/// the manifest: a document cannot choose where credentials go.
fn resolve_url(document: &Document, url: &str, options: &Options) -> String {
    let nothing = JsonObject::new();
    let base = servers::find_base_url(document, &nothing, &nothing, options).ok();
    let base = base.and_then(|base| url::Url::parse(&format!("{base}/")).ok());
    match base.and_then(|base| base.join(url).ok()) {
        Some(url) => url.into(),
        None => url.to_owned(),
    }
}
