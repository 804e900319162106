//! What all inner layers have in common, written once: the tower plumbing around a layer's one idea.
//!
//! A layer says in [`Around::call`] what happens before and after the inner call. [`AroundLayer`] makes a
//! `tower::Layer` of it, so that it stands in a `ServiceBuilder` beside tower's own.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tower::{Layer, Service};

use super::{CallFuture, Outcome};
use crate::call::{CallError, Invocation, ToolResult};

/// The rest of the stack, as a layer sees it.
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

/// One layer's idea.
pub trait Around: Send + Sync + 'static {
    /// Handles a call, by asking `inner` once, several times, or not at all.
    fn call<S: Inner>(
        self: Arc<Self>,
        inner: S,
        invocation: Invocation,
    ) -> impl Future<Output = Outcome> + Send + 'static;
}

/// The idea as a layer.
pub struct AroundLayer<A>(Arc<A>);

impl<A: Around> AroundLayer<A> {
    /// Puts the idea around whatever it is layered on.
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

/// A layer on its inner service. Both are shared: a stack is cloned for every call, and each layer clones the one below.
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
            // The clone that is called is the one that was asked (tower-service's docs).
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            around.call(inner, invocation).await
        };
        call.boxed()
    }
}
