//! Identifies the caller by the key of the request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use crate::access::callers::Callers;
use crate::call::Caller;
use crate::catalog::Catalog;
use crate::catalog::registry::Registry;
use crate::http::problem::ApiError;
use crate::http::state::AppState;

/// An authenticated caller. A handler with none of the types of this file is open to every client.
pub(crate) struct Principal(pub Arc<Caller>);

/// An authenticated caller, and the catalog with which it was authenticated. The handler uses this
/// one catalog for the whole request, so a reload cannot mix two states.
pub(crate) struct Authenticated {
    pub(crate) caller: Arc<Caller>,
    pub(crate) catalog: Arc<Catalog>,
}

/// An authenticated caller who may use the operator's routes.
pub(crate) struct Admin(pub Arc<Caller>);

/// An optional authentication, for a route that is open to every client. `None`: the request has no
/// key, although there are callers. A bad key is still refused.
pub(crate) struct OptionalAuth(pub Option<Authenticated>);

/// The key of a request: `authorization: Bearer …`, or `x-api-key: …`.
pub(crate) fn key_from_headers(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

/// Identifies the caller of a request.
pub(crate) fn authenticate_caller(
    registry: &Registry,
    callers: &Callers,
    headers: &HeaderMap,
) -> Result<Arc<Caller>, ApiError> {
    authenticate_key(registry, callers, key_from_headers(headers))
}

/// Identifies the caller with this key. Without callers in the manifest, every client is
/// `anonymous`, with the operator's rights.
pub(crate) fn authenticate_key(
    registry: &Registry,
    callers: &Callers,
    key: Option<&str>,
) -> Result<Arc<Caller>, ApiError> {
    if callers.is_empty() {
        return Ok(Arc::new(Caller::anonymous()));
    }
    let key = key.ok_or(ApiError::Unauthenticated)?;
    let (caller, first_use) = callers.authenticate(key).ok_or(ApiError::UnknownKey)?;
    if let Some(fingerprint) = first_use {
        registry.note_first_use(&caller.name, fingerprint);
    }
    Ok(caller)
}

impl FromRequestParts<AppState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Authenticated { caller, .. } = Authenticated::from_request_parts(parts, state).await?;
        Ok(Self(caller))
    }
}

impl FromRequestParts<AppState> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let catalog = state.registry.catalog();
        let caller = authenticate_caller(&state.registry, catalog.callers(), &parts.headers)?;
        Ok(Self { caller, catalog })
    }
}

impl FromRequestParts<AppState> for OptionalAuth {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let has_no_key =
            !parts.headers.contains_key(AUTHORIZATION) && !parts.headers.contains_key("x-api-key");
        if has_no_key && !state.registry.catalog().callers().is_empty() {
            return Ok(Self(None));
        }
        Authenticated::from_request_parts(parts, state)
            .await
            .map(|authenticated| Self(Some(authenticated)))
    }
}

impl FromRequestParts<AppState> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Principal(caller) = Principal::from_request_parts(parts, state).await?;
        if caller.admin {
            return Ok(Self(caller));
        }
        Err(ApiError::Forbidden(format!(
            "caller `{}` is not an admin",
            caller.name
        )))
    }
}
