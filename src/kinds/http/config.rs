//! The manifest keys of an `http` tool.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::auth::AuthConfig;
use crate::call::JsonObject;
use crate::call::units::Size;

/// The keys of the kind.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The request that a call sends.
    pub request: RequestConfig,
    /// How the request is authorized, if `headers` is not enough.
    #[schemars(extend("examples" = [serde_json::json!({"oauth": {"token_url": "https://auth.example.com/oauth/token", "client_id": "orders-agent", "client_secret": "${env:CLIENT_SECRET}"}})]))]
    pub auth: Option<AuthConfig>,
    /// How the response becomes the result.
    #[serde(default)]
    pub response: ResponseConfig,
    /// Longest response that is read, at most 4MiB.
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    pub max_output: Option<Size>,
}

/// `request:`. Texts may hold `{{ name }}` placeholders. There is at most one body: `json`, `body`,
/// `body_base64`, `form` or `multipart`.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestConfig {
    /// HTTP method.
    #[schemars(extend("examples" = ["POST"]), extend("default" = "GET"))]
    pub method: Option<String>,
    /// URL, http or https. Placeholders may stand in path and query; in the host only with
    /// `allow_hosts`.
    #[schemars(extend("examples" = ["https://api.example.com/v1/cities/{{ city }}/weather"]))]
    pub url: String,
    /// Query parameters. A lone placeholder without a value is left out, an array is repeated.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"units": "{{ units }}"})]))]
    pub query: JsonObject,
    /// Header fields.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"authorization": "Bearer ${env:WEATHER_KEY}"})]))]
    pub headers: BTreeMap<String, String>,
    /// JSON body. A lone placeholder keeps its type. There is at most one body: `json`, `body`,
    /// `body_base64`, `form` or `multipart`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schemars(extend("examples" = [serde_json::json!({"ids": "{{ ids }}"})]))]
    pub json: Option<Value>,
    /// Text body.
    #[schemars(extend("examples" = ["{{ text }}"]))]
    pub body: Option<String>,
    /// Bytes of the body, as base64.
    #[schemars(extend("examples" = ["{{ file }}"]))]
    pub body_base64: Option<String>,
    /// Form body (`application/x-www-form-urlencoded`), like `query`; or a placeholder for an
    /// object with all fields.
    #[schemars(extend("examples" = [serde_json::json!({"q": "{{ query }}"})]))]
    pub form: Option<Fields>,
    /// Body of type `multipart/form-data`: a value for each part, or `{base64, filename, type}` for
    /// a file.
    #[schemars(extend("examples" = [serde_json::json!({"report": {"base64": "{{ file }}", "filename": "report.pdf"}})]))]
    pub multipart: Option<Fields>,
    /// Cookies. One whose placeholder has no value is left out.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"session": "{{ session }}"})]))]
    pub cookies: BTreeMap<String, String>,
    /// The hosts that a placeholder in the host may lead to.
    #[serde(default)]
    #[schemars(extend("examples" = [["eu.example.com", "us.example.com"]]))]
    pub allow_hosts: Vec<String>,
    /// Allows private and loopback addresses. Metadata addresses are never allowed.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    pub allow_private: bool,
}

/// The fields of a form.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "a map of fields, or a text with one placeholder"
)]
#[schemars(inline)]
pub enum Fields {
    /// A value for each field.
    Map(JsonObject),
    /// A placeholder for an object with all fields.
    Whole(String),
}

/// `response:`.
#[derive(Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// JSON Pointer to the part of the response that is the result. Default: the whole response.
    #[schemars(extend("examples" = ["/current"]))]
    pub pick: Option<String>,
    /// JSON Pointer to a value that marks an error. The result has `is_error: true` unless the
    /// value is absent, null, false or an empty text.
    #[schemars(extend("examples" = ["/error"]))]
    pub error_when: Option<String>,
}

/// Turns `json: null` into `Some(Value::Null)`: `null` is a body, not an absent body.
fn deserialize_present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
