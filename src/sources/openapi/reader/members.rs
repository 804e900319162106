//! Reads members of the document's objects. A member of another type counts as absent.

use serde_json::Value;

use crate::call::JsonObject;

/// An object of the document, or a value that should be one.
pub(super) trait Members {
    fn member(&self, key: &str) -> Option<&Value>;

    fn text(&self, key: &str) -> Option<&str> {
        self.member(key)?.as_str()
    }

    /// The items of a list.
    fn items(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.member(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    }

    /// The members of an object.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.member(key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    }
}

impl Members for Value {
    fn member(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

impl Members for JsonObject {
    fn member(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}
