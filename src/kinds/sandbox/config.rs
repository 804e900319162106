//! `sandbox:` as written.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::proxy::HostRule;
use crate::call::units::{HumanDuration, Size};

/// What a program may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SandboxSetting {
    /// Everything that its user may do, except to reach the service.
    #[default]
    Service,
    /// Everything that its user may do.
    None,
    /// Only what the map names.
    Only(Box<SandboxMap>),
}

/// What a program may use beside the programs and libraries of the system, and its own folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxMap {
    /// The network: none, all of it, or only these hosts, such as `api.example.com` or
    /// `*.example.org:443`.
    #[schemars(extend("examples" = [["api.example.com", "*.example.org:443"]]), extend("default" = false))]
    pub network: NetworkSetting,
    /// Files and folders that it may read, relative to the manifest.
    #[schemars(extend("examples" = [["./data"]]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read and change, relative to the manifest.
    #[schemars(extend("examples" = [["./out"]]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// Most memory of each process.
    #[schemars(extend("examples" = ["512MiB"]))]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub memory: Option<Size>,
    /// Most processor time of each process.
    #[schemars(extend("examples" = ["10s"]))]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_time")]
    pub cpu: Option<HumanDuration>,
    /// Most processes and threads.
    #[schemars(extend("examples" = [64]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Most open files of each process.
    #[schemars(extend("examples" = [256]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    /// Longest file that it may write, and the size of its `/tmp`.
    #[schemars(extend("examples" = ["100MiB"]))]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub disk: Option<Size>,
    /// Refuses to start the program if a part of its sandbox cannot be enforced.
    #[schemars(extend("examples" = [true]))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// `network:`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum NetworkSetting {
    /// All of it, or none.
    All(bool),
    /// Only these hosts. `*.` at the beginning stands for any names before it. Without a port, the
    /// ports 80 and 443.
    Hosts(Vec<String>),
}

impl Default for NetworkSetting {
    fn default() -> Self {
        Self::All(false)
    }
}

/// `sandbox:` as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: the setting reads all forms"
)]
enum Form {
    /// `service`: everything except to reach the service. `none`: everything.
    Word(Word),
    /// `true`: only the system's programs and the program's own folder.
    Flag(bool),
    /// Only what it names.
    Map(SandboxMap),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum Word {
    Service,
    None,
}

impl JsonSchema for SandboxSetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SandboxSetting".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Form::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for SandboxSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::String(word) if word == "service" => Ok(Self::Service),
            Value::String(word) if word == "none" => Ok(Self::None),
            Value::Bool(true) => Ok(Self::Only(Box::default())),
            Value::Bool(false) => Err(D::Error::custom(
                "write `none` for a program without a sandbox, or `service` for the default",
            )),
            map @ Value::Object(_) => {
                let map: SandboxMap = serde_json::from_value(map).map_err(D::Error::custom)?;
                if let NetworkSetting::Hosts(hosts) = &map.network {
                    for host in hosts {
                        HostRule::parse(host).map_err(D::Error::custom)?;
                    }
                }
                Ok(Self::Only(Box::new(map)))
            }
            _ => Err(D::Error::custom(
                "`service`, `none`, true or a map is expected, such as {network: false, write: [./out]}",
            )),
        }
    }
}

impl Serialize for SandboxSetting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Service => "service".serialize(to),
            Self::None => "none".serialize(to),
            Self::Only(map) if **map == SandboxMap::default() => true.serialize(to),
            Self::Only(map) => json!(map).serialize(to),
        }
    }
}

fn write_size<S: Serializer>(size: &Option<Size>, to: S) -> Result<S::Ok, S::Error> {
    size.map(|size| size.0).serialize(to)
}

fn write_time<S: Serializer>(time: &Option<HumanDuration>, to: S) -> Result<S::Ok, S::Error> {
    let text = time.map(|time| humantime::format_duration(time.0).to_string());
    text.serialize(to)
}

impl SandboxSetting {
    /// Whether the program must not start if a part cannot be enforced.
    pub fn is_required(&self) -> bool {
        matches!(self, Self::Only(map) if map.required)
    }
}
