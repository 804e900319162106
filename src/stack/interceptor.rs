//! The tower code that all inner layers share.
//!
//! A layer implements [`Interceptor::call`], which does its work before and after the inner call.
//! [`InterceptorLayer`] makes a `tower::Layer` of it, so that `ServiceBuilder` accepts it beside
//! tower's own layers.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::{Layer, Service};

use crate::call::{CallError, Invocation, ToolResult};

/// The part of the stack below a layer. Below `record`, it returns the result of the tool.
pub trait Inner<R = Arc<ToolResult>>:
    Service<Box<Invocation>, Response = R, Error = CallError, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S, R> Inner<R> for S where
    S: Service<Box<Invocation>, Response = R, Error = CallError, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The logic of one layer.
pub trait Interceptor<R = Arc<ToolResult>>: Send + Sync + 'static {
    /// Handles a call. It may call `inner` once, several times, or not at all.
    fn call<S: Inner<R>>(
        self: Arc<Self>,
        inner: S,
        invocation: Box<Invocation>,
    ) -> impl Future<Output = Result<R, CallError>> + Send + 'static;
}

/// A [`Layer`] that wraps services in the logic `A`.
pub struct InterceptorLayer<A>(Arc<A>);

impl<A> InterceptorLayer<A> {
    /// Makes a layer of this logic.
    pub fn new(interceptor: A) -> Self {
        Self(Arc::new(interceptor))
    }
}

impl<A> Clone for InterceptorLayer<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A, S> Layer<S> for InterceptorLayer<A> {
    type Service = Intercepted<A, S>;

    fn layer(&self, inner: S) -> Intercepted<A, S> {
        Intercepted {
            interceptor: self.0.clone(),
            inner: Arc::new(inner),
        }
    }
}

/// A layer together with its inner service. Both are behind an `Arc`, because a stack is cloned for
/// every call, and each layer clones the layer below.
pub struct Intercepted<A, S> {
    interceptor: Arc<A>,
    inner: Arc<S>,
}

impl<A, S> Clone for Intercepted<A, S> {
    fn clone(&self) -> Self {
        Self {
            interceptor: self.interceptor.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<A, S, R> Service<Box<Invocation>> for Intercepted<A, S>
where
    A: Interceptor<R>,
    S: Inner<R> + Service<Box<Invocation>, Response = R>,
    R: Send + 'static,
{
    type Response = R;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<R, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, invocation: Box<Invocation>) -> Self::Future {
        let (interceptor, mut inner) = (self.interceptor.clone(), S::clone(&self.inner));
        let call = async move {
            // The clone that is called must be the one that was polled ready (see the documentation
            // of tower-service).
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            interceptor.call(inner, invocation).await
        };
        call.boxed()
    }
}
