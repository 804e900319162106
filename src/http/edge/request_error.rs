//! Why a request did not arrive completely.

use std::error::Error;
use std::iter::successors;

/// Why a request did not arrive completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
    /// The connection was chosen to make room just before its request was complete.
    #[error("closed to make room for another connection")]
    Evicted,
}

impl RequestError {
    /// Whether an error of a body has [`RequestError::Evicted`] as its cause.
    pub(crate) fn is_evicted(error: &(dyn Error + 'static)) -> bool {
        successors(Some(error), |&error| error.source())
            .any(|error| matches!(error.downcast_ref(), Some(Self::Evicted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_is_found_below_other_errors() {
        let error = axum::Error::new(RequestError::Evicted);
        assert!(RequestError::is_evicted(&error));
        assert!(RequestError::is_evicted(&axum::Error::new(error)));
        assert!(!RequestError::is_evicted(&axum::Error::new(
            std::fmt::Error
        )));
    }
}
