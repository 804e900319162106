//! Who is calling, by the key that came with the request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::problem::ApiError;
use super::state::AppState;
use crate::call::Caller;
use crate::callers::Callers;

/// An authenticated caller. A handler without this argument is open to everybody.
pub(super) struct Principal(pub Arc<Caller>);

/// An authenticated caller who may use the operator's routes.
pub(super) struct Admin;

/// An authenticated caller, or somebody without a key on a route that is open to everybody. A bad key is refused there
/// too.
pub(super) struct Visitor(pub Option<Arc<Caller>>);

/// The key of a request: `authorization: Bearer …`, or `x-api-key: …`.
fn key(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

/// Who is calling; without callers in the manifest everybody is `anonymous` and trusted as the operator.
pub(super) fn authenticate(callers: &Callers, headers: &HeaderMap) -> Result<Arc<Caller>, ApiError> {
    if callers.is_empty() {
        return Ok(Arc::new(Caller::anonymous()));
    }
    key(headers).and_then(|key| callers.authenticate(key)).ok_or(ApiError::Unauthenticated)
}

impl FromRequestParts<AppState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        authenticate(state.registry.callers(), &parts.headers).map(Principal)
    }
}

impl FromRequestParts<AppState> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let callers = state.registry.callers();
        let comes_with_none = !parts.headers.contains_key(AUTHORIZATION) && !parts.headers.contains_key("x-api-key");
        if comes_with_none && !callers.is_empty() {
            return Ok(Self(None));
        }
        authenticate(callers, &parts.headers).map(|caller| Self(Some(caller)))
    }
}

impl FromRequestParts<AppState> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Principal(caller) = Principal::from_request_parts(parts, state).await?;
        if caller.admin {
            return Ok(Admin);
        }
        Err(ApiError::Forbidden(format!("caller `{}` is no admin", caller.name)))
    }
}
