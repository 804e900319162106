//! Recognizes requests of 2026-07-28 that are valid in every respect, apart from their own
//! parameters. Only such requests are answered without rmcp, so only one place judges invalid ones.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use rmcp::model::ClientCapabilities;
use serde::Deserialize;

use super::accepted::BOTH_TYPES;
use super::message::Message;
use super::{STATELESS_VERSION, VERSION_HEADER};
use crate::call::JsonObject;

/// The two keys that `_meta` of a request of 2026-07-28 must have.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The parts of a valid request.
pub(super) struct ValidRequest<'m> {
    pub(super) params: &'m JsonObject,
    pub(super) meta: &'m JsonObject,
    pub(super) client: ClientCapabilities,
}

impl<'m> ValidRequest<'m> {
    /// `None`, if the message is no valid request with this method.
    pub(super) fn read(headers: &HeaderMap, message: &'m Message, method: &str) -> Option<Self> {
        let has = |name: &str, value: &str| single_header(headers, name) == Some(value);
        let is_valid = message.id.is_some()
            && message.method() == Some(method)
            && has_only(&message.fields, &["jsonrpc", "id", "method", "params"])
            && has(CONTENT_TYPE.as_str(), "application/json")
            && has(VERSION_HEADER, STATELESS_VERSION)
            && has("mcp-method", method)
            && single_header(headers, ACCEPT.as_str()).is_some_and(|types| types == BOTH_TYPES);
        let params = message.fields.get("params").filter(|_| is_valid)?;
        let params = params.as_object()?;
        let meta = params.get("_meta")?.as_object()?;
        let version = meta.get(META_VERSION)?.as_str()?;
        let client = ClientCapabilities::deserialize(meta.get(META_CAPABILITIES)?).ok()?;
        (version == STATELESS_VERSION).then_some(Self {
            params,
            meta,
            client,
        })
    }
}

/// The value of a header that occurs once.
pub(super) fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())?.to_str().ok()
}

/// Whether the object has no other keys.
pub(super) fn has_only(fields: &JsonObject, known: &[&str]) -> bool {
    fields.keys().all(|key| known.contains(&key.as_str()))
}
