//! A client of the service, and its credentials for other services.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::canonical::canonical_json;
use super::json::{JsonObject, hash_parts};

/// A client of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The caller's name; `anonymous` on loopback without keys.
    pub name: Arc<str>,
    /// Whether the caller may use the operator's routes and see all callers' calls.
    pub admin: bool,
    /// The caller's credentials for other services. Only its own calls carry them.
    pub credentials: CallerCredentials,
}

impl Caller {
    /// The name of callers without a key. No caller of a manifest can have it.
    pub const ANONYMOUS: &str = "anonymous";

    /// A caller without credentials for other services.
    pub fn new(name: impl Into<Arc<str>>, admin: bool) -> Self {
        Self {
            name: name.into(),
            admin,
            credentials: CallerCredentials::default(),
        }
    }

    /// The caller of a service without keys. It has the operator's rights, because only this
    /// machine can reach such a service.
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS, true)
    }
}

/// The credentials that requests carry for one caller, by name. They are secrets, so `Debug` shows
/// only their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CallerCredentials {
    values: JsonObject,
    hash: Option<[u8; 32]>,
}

impl CallerCredentials {
    /// These credentials.
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values: JsonObject = values
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .collect();
        let hash = (!values.is_empty()).then(|| hash_parts([canonical_json(&values).as_slice()]));
        Self { values, hash }
    }

    /// The value of a credential, as a text.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The names, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A key of the same length that differs from `key` if there are credentials. Results that were
    /// made with other credentials are found under another key.
    pub fn extend_cache_key(&self, key: [u8; 32]) -> [u8; 32] {
        self.hash.map_or(key, |hash| {
            hash_parts([key.as_slice(), b"credentials", hash.as_slice()])
        })
    }
}

impl fmt::Debug for CallerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(value: &str) -> CallerCredentials {
        CallerCredentials::new([("KEY".to_owned(), value.to_owned())])
    }

    #[test]
    fn debug_shows_names_only() {
        assert_eq!(format!("{:?}", credentials("very-secret")), "[\"KEY\"]");
    }

    #[test]
    fn cache_key_depends_on_credentials() {
        let key = [7; 32];
        assert_eq!(
            CallerCredentials::default().extend_cache_key(key),
            key,
            "stored results are found again"
        );
        let keys = ["one", "other"].map(|value| credentials(value).extend_cache_key(key));
        assert!(keys[0] != keys[1] && !keys.contains(&key));
    }
}
