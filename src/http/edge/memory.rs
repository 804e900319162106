//! Bounds the memory that the bodies of all requests take once they are parsed.
//!
//! One byte of JSON text can become a value of 140 bytes. So `max_body` alone does not bound the
//! memory when many clients send at once. Before a body is parsed, its request reserves the memory
//! that the values may take. It waits while other requests have that memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::http::problem::ApiError;
use crate::runtime::blocking;

/// Memory for the values of all requests, in KiB: thirty bodies of 1 MiB that are long texts, or
/// the densest one alone.
const BUDGET_KIB: usize = 64 << 10;
/// Most memory that the unparsed bodies of waiting requests take, in KiB.
const WAITING_KIB: usize = 32 << 10;
/// A body may have one list or object for this many bytes of `max_body`. For comparison: a list of
/// two digits, such as a point of a grid, takes six bytes.
const CONTAINER_BYTES: usize = 5;
/// A request whose values take no more than this needs no reservation, in KiB. Parsing it takes
/// less than a millisecond.
const FREE_KIB: usize = 256;
/// A body of this length takes less than `FREE_KIB` in any case, in bytes.
const FREE_BYTES: usize = 1 << 10;
/// How long a request waits for memory. Most calls have 30 seconds in all.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Memory for the values of requests. Clones share it.
#[derive(Clone)]
pub(crate) struct MemoryBudget {
    budget: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    budget_kib: usize,
    max_containers: usize,
}

impl MemoryBudget {
    /// For bodies of up to `max_body` bytes.
    pub(crate) fn new(max_body: usize) -> Self {
        // Several of the largest bodies fit at once, if they consist mostly of texts.
        let largest = max_body >> 10;
        Self {
            max_containers: max_body / CONTAINER_BYTES,
            ..Self::with_kib(BUDGET_KIB.max(8 * largest), WAITING_KIB.max(4 * largest))
        }
    }

    fn with_kib(kib: usize, waiting: usize) -> Self {
        let semaphore = |kib: usize| Arc::new(Semaphore::new(kib.min(Semaphore::MAX_PERMITS)));
        Self {
            budget: semaphore(kib),
            waiting: semaphore(waiting),
            budget_kib: kib,
            max_containers: usize::MAX,
        }
    }

    /// Reserves memory for the values of a JSON body, `copies` times.
    ///
    /// # Errors
    /// 413, if the body has too many lists and objects; 503 as [`MemoryBudget::reserve`].
    pub(crate) async fn reserve_json(
        &self,
        body: &[u8],
        copies: usize,
    ) -> Result<Reservation, ApiError> {
        if count_containers(body) > self.max_containers
            && count_containers_outside_strings(body) > self.max_containers
        {
            return Err(ApiError::TooManyValues(self.max_containers));
        }
        self.reserve(body, copies).await
    }

    /// Reserves memory for the values of a body, `copies` times. The memory is free again when
    /// every clone of the reservation is dropped.
    ///
    /// # Errors
    /// 503, if too many large bodies wait, or if this one has waited for too long.
    pub(crate) async fn reserve(
        &self,
        body: &[u8],
        copies: usize,
    ) -> Result<Reservation, ApiError> {
        if body.len() <= FREE_BYTES {
            return Ok(Reservation(None));
        }
        let kib = (estimate_memory(body) >> 10) * copies;
        if kib <= FREE_KIB {
            return Ok(Reservation(None));
        }
        // A body that needs more than the whole budget reserves the whole budget. Otherwise it
        // would wait for ever.
        let kib = to_permits(kib.min(self.budget_kib));
        if let Ok(permit) = self.budget.clone().try_acquire_many_owned(kib) {
            return Ok(Reservation(Some(Arc::new(permit))));
        }
        let _waits = self
            .waiting
            .try_acquire_many(to_permits(body.len() >> 10))
            .map_err(|_| ApiError::OutOfMemory)?;
        match timeout(MAX_WAIT, self.budget.clone().acquire_many_owned(kib)).await {
            Ok(Ok(permit)) => Ok(Reservation(Some(Arc::new(permit)))),
            _ => Err(ApiError::OutOfMemory),
        }
    }
}

fn to_permits(kib: usize) -> u32 {
    u32::try_from(kib).unwrap_or(u32::MAX)
}

/// Memory reserved for one request. Clones share it; dropping the last one frees it.
#[derive(Clone, Default)]
pub(crate) struct Reservation(Option<Arc<OwnedSemaphorePermit>>);

impl Reservation {
    /// Parses the body with `read`, on a thread that may block if the body is large.
    ///
    /// The job holds the reservation itself. If the client disconnects, the thread still parses,
    /// and its memory stays reserved until it ends.
    pub(crate) async fn parse_with<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(permit) = self.0.clone() else {
            return read();
        };
        let job = move || {
            let _permit = permit;
            read()
        };
        // The thread pool takes no job while the service is stopping.
        blocking::run_blocking(job)
            .await
            .unwrap_or(Err(ApiError::OutOfMemory))
    }
}

/// An upper bound of the memory that the values of a JSON text take, in bytes.
///
/// - A value in a list takes 72 bytes. While a list grows, there are two copies of it, with room
///   for up to twice its length: 216 bytes.
/// - A list or object has room for four values as soon as it has one.
/// - Texts count twice: in the body and as values.
/// - Brackets inside texts count too, because models send arguments as texts that hold JSON.
fn estimate_memory(text: &[u8]) -> usize {
    2 * text.len()
        + 220 * (count_byte(text, b',') + count_byte(text, b':'))
        + 300 * count_containers(text)
}

fn count_containers(text: &[u8]) -> usize {
    count_byte(text, b'[') + count_byte(text, b'{')
}

fn count_containers_outside_strings(text: &[u8]) -> usize {
    let (mut containers, mut in_text, mut bytes) = (0, false, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_text = !in_text,
            b'\\' if in_text => drop(bytes.next()),
            b'[' | b'{' if !in_text => containers += 1,
            _ => {}
        }
    }
    containers
}

fn count_byte(text: &[u8], wanted: u8) -> usize {
    text.iter().filter(|byte| **byte == wanted).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense_body(values: usize) -> Vec<u8> {
        format!("[{}]", vec![r#"{"a":0}"#; values].join(",")).into_bytes()
    }

    #[tokio::test]
    async fn small_bodies_need_no_reservation() {
        let budget = MemoryBudget::with_kib(1024, 0);
        let _all = budget.reserve(&dense_body(10_000), 1).await.unwrap();
        assert!(budget.reserve(&dense_body(100), 1).await.is_ok());
        assert!(
            budget
                .reserve("x".repeat(100_000).as_bytes(), 1)
                .await
                .is_ok()
        );
        assert!(matches!(
            budget.reserve(&dense_body(1000), 1).await,
            Err(ApiError::OutOfMemory)
        ));
    }

    #[tokio::test]
    async fn lists_and_objects_are_counted() {
        let budget = MemoryBudget::new(1 << 20);
        let (allowed, too_many) = ("[".repeat(209_715), "{".repeat(209_716));
        assert!(budget.reserve_json(allowed.as_bytes(), 1).await.is_ok());
        let refused = budget.reserve_json(too_many.as_bytes(), 1).await;
        assert!(matches!(refused, Err(ApiError::TooManyValues(209_715))));
        assert!(
            MemoryBudget::new(2 << 20)
                .reserve_json(too_many.as_bytes(), 1)
                .await
                .is_ok()
        );
        let text = format!(r#"["\"{too_many}"]"#);
        assert!(budget.reserve_json(text.as_bytes(), 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn body_waits_for_memory() {
        let budget = MemoryBudget::with_kib(1024, 1024);
        let first = budget.reserve(&dense_body(10_000), 1).await.unwrap();
        let body = dense_body(1000);
        let mut second = Box::pin(budget.reserve(&body, 1));
        assert!(timeout(MAX_WAIT / 2, &mut second).await.is_err());
        drop(first);
        assert!(second.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_is_limited() {
        let budget = MemoryBudget::with_kib(1024, 1024);
        let held = budget.reserve(&dense_body(10_000), 1).await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(matches!(
            budget.reserve(&dense_body(1000), 1).await,
            Err(ApiError::OutOfMemory)
        ));
        assert_eq!(began.elapsed(), MAX_WAIT);
        drop(held);
        assert!(budget.reserve(&dense_body(1000), 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_bodies_are_limited() {
        let budget = MemoryBudget::with_kib(1024, 100);
        let _held = budget.reserve(&dense_body(10_000), 1).await.unwrap();
        let body = dense_body(10_000);
        let mut waiting = Box::pin(budget.reserve(&body, 1));
        assert!(timeout(MAX_WAIT / 2, &mut waiting).await.is_err());
        let began = tokio::time::Instant::now();
        assert!(matches!(
            budget.reserve(&body, 1).await,
            Err(ApiError::OutOfMemory)
        ));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn parsing_holds_its_memory_after_disconnect() {
        let budget = MemoryBudget::with_kib(1024, 1024);
        let reserved = budget.reserve(&dense_body(10_000), 1).await.unwrap();
        let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
        let read = reserved.parse_with(move || held.recv().map_err(|_| ApiError::Internal));
        assert!(timeout(Duration::from_millis(5), read).await.is_err());
        drop(reserved);
        assert_eq!(budget.budget.available_permits(), 0);
        release.send(()).unwrap();
        assert!(budget.reserve(&dense_body(10_000), 1).await.is_ok());
    }
}
