//! Shares token sources among all entries with equal settings.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::super::address_policy::AddressPolicy;
use super::config::OauthConfig;
use super::token_endpoint::TokenEndpoint;
use super::token_source::{SharedRedactor, TokenSource};
use crate::secrets::Redactor;

/// The token sources of one service. Tools with equal settings share one source, also across
/// reloads: a refresh token that the server has replaced must not be lost with the tool that
/// received its successor. Clones share the sources.
#[derive(Clone, Default)]
pub struct TokenSources(Arc<Inner>);

#[derive(Default)]
struct Inner {
    redactor: SharedRedactor,
    /// Weak, so that a source ends with the last tool that uses it.
    by_settings: Mutex<HashMap<(OauthConfig, AddressPolicy), Weak<TokenSource>>>,
}

impl TokenSources {
    /// Sets the redactor that learns all tokens from now on.
    pub(crate) fn set_redactor(&self, redactor: &Arc<Redactor>) {
        self.0.redactor.store(Some(redactor.clone()));
    }

    /// The source of the tokens of this endpoint, whose client has this policy.
    pub(super) fn get(&self, endpoint: TokenEndpoint, policy: AddressPolicy) -> Arc<TokenSource> {
        let mut by_settings = self.0.by_settings.lock();
        let key = (endpoint.config.clone(), policy);
        if let Some(known) = by_settings.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        by_settings.retain(|_, source| source.strong_count() > 0);
        let refresh_token = endpoint.config.refresh_token.clone();
        let source = TokenSource::new(endpoint, refresh_token, self.0.redactor.clone());
        by_settings.insert(key, Arc::downgrade(&source));
        source
    }
}
