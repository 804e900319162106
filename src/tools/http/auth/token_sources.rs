//! Shares token sources among all entries with equal settings.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use url::Url;

use super::super::HttpClients;
use super::super::address_policy::AddressPolicy;
use super::config::OauthConfig;
use super::token_endpoint::TokenEndpoint;
use super::token_source::TokenSource;
use crate::secrets::Redactor;
use crate::tools::ConfigFault;

/// The redactor that learns the tokens. It is set when the service starts.
pub(super) type SharedRedactor = Arc<ArcSwapOption<Redactor>>;

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

    /// The source for these settings, and warnings about them.
    ///
    /// # Errors
    /// The fault with which no token can be requested.
    pub(super) fn get(
        &self,
        config: &OauthConfig,
        policy: AddressPolicy,
        clients: &HttpClients,
    ) -> Result<(Arc<TokenSource>, Vec<ConfigFault>), Vec<ConfigFault>> {
        let error =
            |message: &str| vec![ConfigFault::error(&["auth", "oauth", "token_url"], message)];
        let url = Url::parse(&config.token_url).map_err(|fault| error(&fault.to_string()))?;
        let policy = match url.scheme() {
            "http" if !policy.allows_private() => {
                let message = "https is needed, because the request carries the client's secret; http is only for private \
                               addresses, with `allow_private: true`";
                return Err(error(message));
            }
            "http" => policy.denying_global(),
            _ => policy,
        };
        let client = clients.get(policy).map_err(|message| error(&message))?;
        let denied = client.check_url(&url).err().map(|denied| {
            ConfigFault::warning(&["auth", "oauth", "token_url"], denied.to_string())
        });
        let mut by_settings = self.0.by_settings.lock();
        let key = (config.clone(), policy);
        let known = by_settings.get(&key).and_then(Weak::upgrade);
        let source = known.unwrap_or_else(|| {
            by_settings.retain(|_, source| source.strong_count() > 0);
            let endpoint = TokenEndpoint {
                config: config.clone(),
                url,
                client,
            };
            let source = TokenSource::new(
                endpoint,
                config.refresh_token.clone(),
                self.0.redactor.clone(),
            );
            by_settings.insert(key, Arc::downgrade(&source));
            source
        });
        Ok((source, denied.into_iter().collect()))
    }
}

impl fmt::Debug for TokenSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSources").finish_non_exhaustive()
    }
}
