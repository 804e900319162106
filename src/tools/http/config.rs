//! The manifest keys of an `http` tool, and the collector of the faults that its build finds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::address_policy::AddressPolicy;
use super::auth::{AuthConfig, RequestAuth};
use crate::call::units::Size;
use crate::call::{Effect, JsonObject};
use crate::tools::config::names_in_single_braces;
use crate::tools::template::Template;
use crate::tools::{BuildContext, ConfigFault, FaultRule, Placeholder};

/// The keys of the kind.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The request that a call sends.
    pub request: RequestConfig,
    /// How the request is authorized, if `headers` is not enough.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"oauth": {"token_url": "https://auth.example.com/oauth/token", "client_id": "orders-agent", "client_secret": "${env:CLIENT_SECRET}"}})]))]
    pub auth: Option<AuthConfig>,
    /// How the response becomes the result.
    #[serde(default)]
    pub response: ResponseConfig,
    /// Longest response that is read, at most 4MiB.
    #[serde(default)]
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    pub max_output: Option<Size>,
}

/// `request:`. Texts may hold `{{ name }}` placeholders. There is at most one body: `json`, `body`,
/// `body_base64`, `form` or `multipart`.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestConfig {
    /// HTTP method.
    #[serde(default)]
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
    #[serde(default)]
    #[schemars(extend("examples" = ["{{ text }}"]))]
    pub body: Option<String>,
    /// Bytes of the body, as base64.
    #[serde(default)]
    #[schemars(extend("examples" = ["{{ file }}"]))]
    pub body_base64: Option<String>,
    /// Form body (`application/x-www-form-urlencoded`), like `query`; or a placeholder for an
    /// object with all fields.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"q": "{{ query }}"})]))]
    pub form: Option<Fields>,
    /// Body of type `multipart/form-data`: a value for each part, or `{base64, filename, type}` for
    /// a file.
    #[serde(default)]
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
    #[serde(default)]
    #[schemars(extend("examples" = ["/current"]))]
    pub pick: Option<String>,
    /// JSON Pointer to a value that marks an error. The result has `is_error: true` unless the
    /// value is absent, null, false or an empty text.
    #[serde(default)]
    #[schemars(extend("examples" = ["/error"]))]
    pub error_when: Option<String>,
}

/// Turns `json: null` into `Some(Value::Null)`: `null` is a body, not an absent body.
fn deserialize_present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Collects all faults, so that the operator sees them at once.
pub(super) struct FaultCollector<'a> {
    context: &'a BuildContext<'a>,
    pub(super) faults: Vec<ConfigFault>,
    /// The parameters that placeholders name.
    used_parameters: BTreeSet<String>,
}

impl<'a> FaultCollector<'a> {
    pub(super) fn new(context: &'a BuildContext<'a>) -> Self {
        Self {
            context,
            faults: Vec::new(),
            used_parameters: BTreeSet::new(),
        }
    }

    pub(super) fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.faults.push(ConfigFault::error(path, message));
    }

    pub(super) fn warning(&mut self, path: &[&str], message: impl Into<String>) {
        self.faults.push(ConfigFault::warning(path, message));
    }

    pub(super) fn warn_with_rule(
        &mut self,
        rule: FaultRule,
        path: &[&str],
        message: impl Into<String>,
    ) {
        self.faults
            .push(ConfigFault::warning(path, message).with_rule(rule));
    }

    /// Reports a literal address that the address policy refuses. In the operator's manifest this
    /// is only a warning.
    pub(super) fn report_denied_address(&mut self, path: &[&str], message: impl Into<String>) {
        match self.context.trusted {
            true => self.warning(path, format!("{}: calls will fail", message.into())),
            false => self.error(path, message),
        }
    }

    /// Parses a part of a text. The whole text was parsed before and reported its faults, so this
    /// reports none.
    pub(super) fn parse_part(&self, text: &str) -> Option<Template> {
        self.context.parse_styled_template(text).ok()
    }

    /// Parses a text as a template, and checks its placeholders against the tool's parameters and
    /// declared context fields.
    pub(super) fn parse_template(&mut self, text: &str, path: &[&str]) -> Option<Template> {
        match self.context.parse_styled_template(text) {
            Ok(template) => {
                self.faults
                    .extend(self.context.unknown_placeholders(&template, path));
                self.faults
                    .extend(self.context.single_braces(&template, path));
                // A name in one brace has a warning of its own.
                let names = template
                    .parameters()
                    .chain(names_in_single_braces(&template));
                self.used_parameters.extend(names.map(str::to_owned));
                Some(template)
            }
            Err(message) => {
                self.error(path, message);
                None
            }
        }
    }

    /// Warns of parameters whose values are not sent.
    pub(super) fn warn_unused_parameters(&mut self) {
        self.faults.extend(
            self.context
                .unused_parameters(&self.used_parameters, "`request`"),
        );
    }

    /// Reports a placeholder in a key: keys are never filled in.
    pub(super) fn check_key(&mut self, key: &str, path: &[&str]) {
        if key.contains("{{") {
            self.error(path, "placeholders are allowed in values, not in keys");
        }
    }

    /// The first parameter in the template that a valid call may omit.
    pub(super) fn first_optional_parameter<'t>(&self, template: &'t Template) -> Option<&'t str> {
        template
            .placeholders()
            .find_map(|placeholder| match placeholder {
                Placeholder::Argument(name) => self
                    .context
                    .parameter_use(name)
                    .is_some_and(|parameter| !parameter.always_present)
                    .then_some(name.as_str()),
                // A schema cannot require a field of the context, so this gives no advice about it.
                Placeholder::Context(_) | Placeholder::Caller(_) => None,
            })
    }

    /// Prepares the authorization of requests, and collects its faults. `None` after an error.
    pub(super) fn build_auth(
        &mut self,
        config: &AuthConfig,
        policy: AddressPolicy,
    ) -> Option<RequestAuth> {
        match RequestAuth::build(config, policy, self.context.clients) {
            Ok((auth, warnings)) => {
                self.faults.extend(warnings);
                Some(auth)
            }
            Err(errors) => {
                self.faults.extend(errors);
                None
            }
        }
    }

    /// The effect that the tool is declared to have.
    pub(super) fn effect(&self) -> Effect {
        self.context.effect
    }

    /// Whether one of the faults is an error, so that the tool cannot be built.
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| !fault.warning)
    }
}
