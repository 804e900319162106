//! A client of the service.

use std::sync::Arc;

use super::caller_credentials::CallerCredentials;

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
