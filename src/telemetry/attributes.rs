//! Makes attributes of OTLP.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

/// Collects attributes.
#[derive(Default)]
pub(super) struct Attributes(Vec<KeyValue>);

impl Attributes {
    pub(super) fn add(&mut self, key: &str, value: Value) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(any(value)),
            ..KeyValue::default()
        });
    }

    pub(super) fn text(&mut self, key: &str, value: impl Into<String>) {
        self.add(key, Value::StringValue(value.into()));
    }

    pub(super) fn text_if(&mut self, key: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn integer(&mut self, key: &str, value: impl TryInto<i64>) {
        self.add(key, Value::IntValue(value.try_into().unwrap_or(i64::MAX)));
    }

    pub(super) fn into_vec(self) -> Vec<KeyValue> {
        self.0
    }
}

pub(super) fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

/// The scope of everything that the service sends.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}
