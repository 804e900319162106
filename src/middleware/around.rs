//! The tower code that all inner layers share.
//!
//! A layer implements [`Around::call`], which does its work before and after the inner call. [`AroundLayer`] makes a
//! `tower::Layer` of it, so that `ServiceBuilder` accepts it beside tower's own layers.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tower::{Layer, Service};

use super::{CallFuture, Outcome};
use crate::call::{CallError, Invocation, ToolResult};

/// The part of the stack below a layer.
pub trait Inner:
    Service<Invocation, Response = Arc<ToolResult>, Error = CallError, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Inner for S where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The logic of one layer.
pub trait Around: Send + Sync + 'static {
    /// Handles a call. It may call `inner` once, several times, or not at all.
    fn call<S: Inner>(
        self: Arc<Self>,
        inner: S,
        invocation: Invocation,
    ) -> impl Future<Output = Outcome> + Send + 'static;
}

/// A [`Layer`] that wraps services in the logic `A`.
pub struct AroundLayer<A>(Arc<A>);

impl<A: Around> AroundLayer<A> {
    /// Makes a layer of this logic.
    pub fn new(around: A) -> Self {
        Self(Arc::new(around))
    }
}

impl<A> Clone for AroundLayer<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A, S> Layer<S> for AroundLayer<A> {
    type Service = Arounded<A, S>;

    fn layer(&self, inner: S) -> Arounded<A, S> {
        Arounded { around: self.0.clone(), inner: Arc::new(inner) }
    }
}

/// A layer together with its inner service. Both are behind an `Arc`, because a stack is cloned for every call, and
/// each layer clones the layer below.
pub struct Arounded<A, S> {
    around: Arc<A>,
    inner: Arc<S>,
}

impl<A, S> Clone for Arounded<A, S> {
    fn clone(&self) -> Self {
        Self { around: self.around.clone(), inner: self.inner.clone() }
    }
}

impl<A: Around, S: Inner> Service<Invocation> for Arounded<A, S> {
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let (around, mut inner) = (self.around.clone(), S::clone(&self.inner));
        let call = async move {
            // The clone that is called must be the one that was polled ready (see the documentation of tower-service).
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            around.call(inner, invocation).await
        };
        call.boxed()
    }
}
