//! Tools from an OpenAPI document. Each operation is a tool of kind `http`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytesize::ByteSize;
use parking_lot::Mutex;
use reqwest::header::{ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};
use url::Url;

use crate::call::JsonObject;
use crate::call::units::Size;
use crate::kinds::BuildContext;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::client::host_and_port;
use crate::kinds::http::received::read_whole_text;
use crate::kinds::http::response::header_text;
use crate::kinds::http::{self, AuthConfig, Config, HttpClients};
use crate::kinds::literal::{escape_for_template, remove_caller_references};
use crate::kinds::process_env::ProcessEnv;
use crate::runtime::blocking::run_blocking;
use crate::schema::{Schema, SchemaOwner, describe_unjudged_patterns};
use crate::sources::openapi::reader::{
    Document, Import, LeftOut, Operation, Options, Selector, import, shown_operation,
};
use crate::sources::source::{
    DefinitionFingerprint, DiscoveredTool, Operations, Source, SourceFault, SourceListing,
    SourceStatus, StatusFn, ToolDefinitionSnapshot,
};

/// The largest document.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;
/// The status of a document that has not changed (RFC 9110, 15.4.5).
const NOT_MODIFIED: u16 = 304;
/// How often a document at a URL is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(300);

/// One entry of `openapi:`, with references and relative paths resolved.
#[derive(Clone, PartialEq)]
pub struct ApiSettings {
    /// The name of the source.
    pub name: String,
    /// Where the document is.
    pub document: DocumentLocation,
    /// The base URL of all operations. Default: the first server of the document.
    pub base_url: Option<String>,
    /// The operations that are wanted. Empty: all.
    pub include: Vec<Selector>,
    /// The operations that are not wanted. They take precedence over `include`.
    pub exclude: Vec<Selector>,
    /// Header fields of every request.
    pub headers: BTreeMap<String, String>,
    /// Query parameters of every request.
    pub query: BTreeMap<String, String>,
    /// How requests are authorized besides.
    pub auth: Option<AuthConfig>,
    /// Whether requests may go to private and loopback addresses.
    pub allow_private: bool,
    /// Hosts besides the base URL's that operations may name as their server.
    pub allow_hosts: Vec<String>,
    /// The longest response, if it is not the default.
    pub max_output: Option<Size>,
    /// The time to read the document.
    pub start_timeout: Duration,
}

/// Where a document is.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentLocation {
    /// A file.
    File(PathBuf),
    /// A URL, http or https.
    Url(Url),
}

/// The API of a document, as a source of tools.
pub struct Api {
    settings: ApiSettings,
    process_env: ProcessEnv,
    clients: Arc<HttpClients>,
    poll_interval: Duration,
    state: Mutex<State>,
}

/// A document that was read.
enum Reading {
    Document(String, HeaderMap),
    /// It is the version that the validators name.
    NotModified,
}

#[derive(Default)]
struct State {
    status: SourceStatus,
    /// The hash of the document that was listed last.
    listed: Option<[u8; 32]>,
    validators: HeaderMap,
    /// A changed document that is not listed yet.
    fetched: Option<(String, HeaderMap)>,
}

impl Api {
    /// The source, without its document.
    pub(crate) fn new(settings: ApiSettings, process_env: &ProcessEnv) -> Self {
        let clients = Arc::new(process_env.http_clients());
        Self {
            settings,
            process_env: process_env.clone(),
            clients,
            poll_interval: POLL_INTERVAL,
            state: Mutex::default(),
        }
    }

    /// Reads the document. `known` names the version that need not be sent again.
    async fn read_document(&self, known: &HeaderMap) -> Result<Reading, String> {
        match &self.settings.document {
            DocumentLocation::File(file) => {
                let path = file.clone();
                let read = run_blocking(move || std::fs::read_to_string(&path)).await;
                let read = read.ok_or("the service is stopping")?;
                let text = read.map_err(|error| {
                    format!("the document {} cannot be read: {error}", file.display())
                })?;
                Ok(Reading::Document(text, HeaderMap::new()))
            }
            DocumentLocation::Url(url) => {
                let wait = self.settings.start_timeout;
                let fetched = timeout(wait, self.fetch(url, known)).await;
                fetched.unwrap_or_else(|_| {
                    Err(format!(
                        "`{}` did not send the document within {wait:?}",
                        host_and_port(url)
                    ))
                })
            }
        }
    }

    async fn fetch(&self, url: &Url, known: &HeaderMap) -> Result<Reading, String> {
        let client = self.clients.get(AddressPolicy::allow_all());
        let mut request = reqwest::Request::new(reqwest::Method::GET, url.clone());
        request.headers_mut().extend(known.clone());
        let host = host_and_port(url);
        let response = client
            .send(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        if status.as_u16() == NOT_MODIFIED && !known.is_empty() {
            return Ok(Reading::NotModified);
        }
        if status.is_redirection() {
            let target = header_text(&response, LOCATION).unwrap_or_default();
            return Err(format!(
                "`{host}` redirects to {target}: write the URL of the document itself"
            ));
        }
        if !status.is_success() {
            return Err(format!(
                "`{host}` answered {status} instead of the document"
            ));
        }
        let validators = read_validators(response.headers());
        let bytes = read_whole_text(response, MAX_DOCUMENT_BYTES).await;
        let bytes = bytes.map_err(|error| error.to_string())?.ok_or_else(|| {
            let most = ByteSize(MAX_DOCUMENT_BYTES as u64);
            format!("the document is larger than {most}")
        })?;
        let text = String::from_utf8(bytes).map_err(|_| "the document is not UTF-8")?;
        Ok(Reading::Document(text, validators))
    }

    async fn try_list(&self) -> Result<SourceListing, String> {
        let fetched = self.state.lock().fetched.take();
        let (text, validators) = match fetched {
            Some(fetched) => fetched,
            None => match self.read_document(&HeaderMap::new()).await? {
                Reading::Document(text, validators) => (text, validators),
                Reading::NotModified => return Err("the server did not send the document".into()),
            },
        };
        let (settings, clients) = (self.settings.clone(), self.clients.clone());
        let built = run_blocking(move || {
            let built = build_tools(&settings, &clients, read_document(&settings, &text)?)?;
            Ok::<_, String>((built, hash_document(&text)))
        });
        let ((mut listing, operations), hash) = built.await.ok_or("the service is stopping")??;
        for tool in &mut listing.tools {
            tool.redact_secrets(&self.process_env.redactor);
        }
        *self.state.lock() = State {
            status: SourceStatus {
                is_up: true,
                operations: Some(operations.into()),
                ..SourceStatus::default()
            },
            listed: Some(hash),
            validators,
            fetched: None,
        };
        Ok(listing)
    }
}

/// The conditions of a request that asks for the document only if it has changed since, from the names
/// of its version in a response (RFC 9110, 8.8).
fn read_validators(headers: &HeaderMap) -> HeaderMap {
    let validators = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    let mut conditions = HeaderMap::new();
    for (sent, condition) in validators {
        conditions.extend(headers.get(sent).cloned().map(|value| (condition, value)));
    }
    conditions
}

#[async_trait]
impl Source for Api {
    async fn list(&self, _: &StatusFn) -> Result<SourceListing, SourceFault> {
        self.try_list().await.map_err(|fault| {
            let status = &mut self.state.lock().status;
            (status.fault, status.fault_at) = (Some(fault.clone()), Some(Instant::now()));
            SourceFault(fault)
        })
    }

    fn status(&self) -> SourceStatus {
        self.state.lock().status.clone()
    }

    /// Ends when the document at a URL has changed. A file is watched with the manifest.
    async fn changed(&self) {
        if let DocumentLocation::File(_) = &self.settings.document {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.poll_interval).await;
            let known = self.state.lock().validators.clone();
            // A document that cannot be read now does not remove tools that work.
            let Ok(Reading::Document(text, validators)) = self.read_document(&known).await else {
                continue;
            };
            let hashed = run_blocking(move || (hash_document(&text), text)).await;
            let Some((hash, text)) = hashed else {
                continue;
            };
            let mut state = self.state.lock();
            if state.listed != Some(hash) {
                state.fetched = Some((text, validators));
                return;
            }
            state.validators = validators;
        }
    }
}

/// The hash of a whole document. It takes long for a large one.
fn hash_document(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Reads a document under these settings.
///
/// # Errors
/// A sentence: the text is not a document that can be used.
pub fn read_document(settings: &ApiSettings, text: &str) -> Result<Import, String> {
    let document =
        Document::parse(text).map_err(|fault| format!("the document cannot be used: {fault}"))?;
    let options = Options {
        base_url: settings.base_url.clone(),
        document_url: match &settings.document {
            DocumentLocation::Url(url) => Some(url.clone()),
            DocumentLocation::File(_) => None,
        },
        include: settings.include.clone(),
        exclude: settings.exclude.clone(),
        headers: settings.headers.keys().cloned().collect(),
        query: settings.query.keys().cloned().collect(),
        has_auth: settings.auth.is_some(),
        allow_hosts: settings.allow_hosts.clone(),
    };
    Ok(import(&document, &options))
}

/// Builds the tools of a document.
///
/// # Errors
/// A sentence: no operation is a tool.
pub fn build_tools(
    settings: &ApiSettings,
    clients: &HttpClients,
    import: Import,
) -> Result<(SourceListing, Operations), String> {
    let Import {
        found,
        operations,
        mut left_out,
        warnings,
    } = import;
    let mut listing = SourceListing {
        warnings,
        ..SourceListing::default()
    };
    for operation in operations {
        match build_tool(settings, clients, &operation) {
            Ok((tool, warnings)) => {
                listing.tools.push(tool);
                // A private base address is the same warning for every operation.
                for warning in warnings {
                    if !listing.warnings.contains(&warning) {
                        listing.warnings.push(warning);
                    }
                }
            }
            Err(reason) => left_out.push(LeftOut {
                name: operation.name,
                operation: shown_operation(&operation.method, &operation.path),
                reason,
            }),
        }
    }
    if listing.tools.is_empty() {
        let reason = left_out
            .first()
            .map(|first| format!(": {}: {}", first.operation, first.reason))
            .or_else(|| Some(format!(": {}", listing.warnings.first()?)))
            .unwrap_or_default();
        return Err(format!("none of its {found} operations is a tool{reason}"));
    }
    for one in &left_out {
        let (operation, reason) = (&one.operation, &one.reason);
        let warning = format!("the operation {operation} is left out: {reason}");
        listing.warnings.push(warning);
        listing.skipped_names.push(one.name.clone());
    }
    let operations = Operations {
        found,
        imported: listing.tools.len(),
        left_out,
    };
    Ok((listing, operations))
}

fn build_tool(
    settings: &ApiSettings,
    clients: &HttpClients,
    operation: &Operation,
) -> Result<(DiscoveredTool, Vec<String>), String> {
    let input_schema = compilable_schema(&operation.input_schema)?;
    let output_schema = operation.output_schema.clone();
    let output_schema = output_schema.filter(|schema| {
        Schema::compile_output(Arc::new(schema.clone()), SchemaOwner::Foreign).is_ok()
    });
    let is_at_url = matches!(settings.document, DocumentLocation::Url(_));
    let mut request = operation.request.clone();
    remove_foreign_references(
        &mut request,
        settings.base_url.as_deref().unwrap_or_default(),
    );
    add_entries(&mut request, "headers", &settings.headers);
    add_entries(&mut request, "query", &settings.query);
    request.insert("allow_private".into(), settings.allow_private.into());
    let mut config: Config = serde_json::from_value(json!({"request": request}))
        .map_err(|error| format!("its request: {error}"))?;
    config.max_output = settings.max_output;
    config.auth.clone_from(&settings.auth);
    let context = BuildContext {
        name: &operation.name,
        base_dir: Path::new(""),
        input_schema: &input_schema,
        context_fields: &[],
        effect: operation.effect,
        trusted: true,
    };
    let (runner, faults) = http::build(config, &context, clients).map_err(|faults| {
        let errors = faults.into_iter().filter(|fault| !fault.warning);
        let errors: Vec<String> = errors.map(|fault| fault.message).collect();
        errors.join("; ")
    })?;
    let tool = DiscoveredTool {
        name: operation.name.clone(),
        description: operation.description.clone(),
        input_schema,
        output_schema,
        schema_owner: SchemaOwner::Foreign,
        effect: Some(operation.effect),
        tags: operation.tags.clone(),
        annotations: JsonObject::new(),
        meta: JsonObject::new(),
        result_as_answer: false,
        max_calls: None,
        env: Vec::new(),
        snapshot: is_at_url.then(|| ToolDefinitionSnapshot {
            fingerprint: Arc::new(fingerprint_operation(
                operation,
                settings.base_url.as_deref(),
            )),
            // It sends the request of this listing, whatever the document says later.
            runner: runner.clone(),
        }),
        runner,
    };
    Ok((
        tool,
        faults.into_iter().map(|fault| fault.message).collect(),
    ))
}

/// The schema of arguments as models read it. Documents have patterns in the syntax of other
/// languages; a model can follow such a pattern as a text.
///
/// # Errors
/// A sentence: the schema cannot be used.
pub fn compilable_schema(schema: &Value) -> Result<Value, String> {
    let described = describe_unjudged_patterns(schema, SchemaOwner::Foreign);
    let schema = described.unwrap_or_else(|| schema.clone());
    Schema::compile_input(Arc::new(schema.clone()), SchemaOwner::Foreign)
        .map_err(|fault| format!("its schema cannot be used: {}", fault.message))?;
    Ok(schema)
}

/// The fingerprint of an operation: what models read of it, and the request that it makes. The
/// manifest's base URL is not part of it, because it may hold a secret, and the pins cover it as
/// written.
fn fingerprint_operation(operation: &Operation, base_url: Option<&str>) -> DefinitionFingerprint {
    let mut request = operation.request.clone();
    if let (Some(Value::String(url)), Some(base)) = (request.get_mut("url"), base_url)
        && let Some(rest) = url.strip_prefix(base.trim_end_matches('/'))
    {
        *url = rest.to_owned();
    }
    DefinitionFingerprint::new(
        &operation.name,
        [
            ("description", Some(operation.description.clone().into())),
            ("inputSchema", Some(operation.input_schema.clone())),
            ("outputSchema", operation.output_schema.clone()),
            ("request", Some(Value::Object(request))),
        ],
    )
}

/// Makes sure that only the operator's texts refer to credentials of callers: headers and query
/// parameters, which are not in the request yet, and the base URL.
fn remove_foreign_references(request: &mut JsonObject, base_url: &str) {
    let base_url = base_url.trim_end_matches('/');
    for (key, part) in request {
        match part {
            Value::String(url) if key == "url" && url.starts_with(base_url) => {
                *url = format!(
                    "{base_url}{}",
                    remove_caller_references(&url[base_url.len()..])
                );
            }
            part => remove_references(part),
        }
    }
}

fn remove_references(value: &mut Value) {
    match value {
        Value::String(text) => *text = remove_caller_references(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(remove_references),
        Value::Object(fields) => fields.values_mut().for_each(remove_references),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the operator's entries to a part of the request. Their texts are not templates.
fn add_entries(request: &mut JsonObject, key: &str, entries: &BTreeMap<String, String>) {
    if entries.is_empty() {
        return;
    }
    let part = request.entry(key).or_insert_with(|| json!({}));
    if let Value::Object(part) = part {
        for (name, text) in entries {
            part.insert(name.clone(), escape_for_template(text).into_owned().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::environment::Environment;
    use crate::secrets::Redactor;

    /// A server of one document, with an ETag unless it is empty.
    struct DocumentServer {
        url: Url,
        /// The ETag and the path of the only operation.
        served: watch::Sender<(&'static str, &'static str)>,
        /// The answers with the document, and those without.
        sent: Arc<AtomicUsize>,
        not_modified: Arc<AtomicUsize>,
    }

    async fn serve_document(etag: &'static str) -> DocumentServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/openapi.json", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let (served, current) = watch::channel((etag, "/one"));
        let (sent, not_modified) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (sent.clone(), not_modified.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else {
                        break;
                    };
                    request.push(byte);
                }
                let (etag, path) = *current.borrow();
                let request = String::from_utf8_lossy(&request).to_lowercase();
                let answer = if !etag.is_empty()
                    && request.contains(&format!("if-none-match: \"{etag}\"\r\n"))
                {
                    counts.1.fetch_add(1, Ordering::SeqCst);
                    "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned()
                } else {
                    counts.0.fetch_add(1, Ordering::SeqCst);
                    let document = json!({
                        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
                        "paths": {path: {"get": {"operationId": "look", "summary": "Looks at one thing."}}},
                    })
                    .to_string();
                    let etag = if etag.is_empty() {
                        String::new()
                    } else {
                        format!("etag: \"{etag}\"\r\n")
                    };
                    format!("HTTP/1.1 200 OK\r\n{etag}connection: close\r\n\r\n{document}")
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        DocumentServer {
            url,
            served,
            sent,
            not_modified,
        }
    }

    fn api(server: &DocumentServer) -> Api {
        let settings = ApiSettings {
            name: "shop".into(),
            document: DocumentLocation::Url(server.url.clone()),
            base_url: Some("https://shop.example/v1/".into()),
            include: Vec::new(),
            exclude: Vec::new(),
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            auth: None,
            allow_private: false,
            allow_hosts: Vec::new(),
            max_output: None,
            start_timeout: Duration::from_secs(30),
        };
        let environment =
            ProcessEnv::new(Arc::new(Redactor::default()), &Environment::from_process());
        Api {
            poll_interval: Duration::from_millis(5),
            ..Api::new(settings, &environment)
        }
    }

    async fn fingerprint(api: &Api) -> Arc<DefinitionFingerprint> {
        let listing = api.list(&|_| {}).await.unwrap();
        listing.tools[0]
            .snapshot
            .as_ref()
            .unwrap()
            .fingerprint
            .clone()
    }

    async fn wait_for(count: &AtomicUsize, least: usize) {
        while count.load(Ordering::SeqCst) < least {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn changed_document_ends_the_wait() {
        for etag in ["", "v1"] {
            let server = serve_document(etag).await;
            let api = Arc::new(api(&server));
            let before = fingerprint(&api).await;
            let changed = tokio::spawn({
                let api = api.clone();
                async move { api.changed().await }
            });
            let polls = if etag.is_empty() {
                &server.sent
            } else {
                &server.not_modified
            };
            wait_for(polls, 3).await;
            assert!(!changed.is_finished(), "the document is the same");
            server
                .served
                .send_replace((if etag.is_empty() { "" } else { "v2" }, "/two"));
            tokio::time::timeout(Duration::from_secs(30), changed)
                .await
                .unwrap()
                .unwrap();
            let so_far = server.sent.load(Ordering::SeqCst);
            let after = fingerprint(&api).await;
            let sent = server.sent.load(Ordering::SeqCst);
            assert_eq!(sent, so_far, "the changed document is at hand");
            let mut parts = before.part_hashes.clone();
            parts.retain(|part, hash| after.part_hashes.get(part) != Some(hash));
            assert_eq!(parts.keys().collect::<Vec<_>>(), [&"request"]);
        }
    }

    #[tokio::test]
    async fn unchanged_document_is_not_sent_again() {
        let server = serve_document("v1").await;
        let api = Arc::new(api(&server));
        api.list(&|_| {}).await.unwrap();
        let changed = tokio::spawn({
            let api = api.clone();
            async move { api.changed().await }
        });
        wait_for(&server.not_modified, 3).await;
        assert_eq!(server.sent.load(Ordering::SeqCst), 1);
        // Another version with the same text is no change, and its ETag is sent from then on.
        server.served.send_replace(("v2", "/one"));
        let so_far = server.not_modified.load(Ordering::SeqCst);
        wait_for(&server.not_modified, so_far + 3).await;
        assert!(!changed.is_finished());
        assert_eq!(server.sent.load(Ordering::SeqCst), 2);
        changed.abort();
    }
}
