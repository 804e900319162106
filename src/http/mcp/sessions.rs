//! The sessions of MCP versions until 2025-11-25: their owners, their number and their end.
//!
//! rmcp keeps the sessions, but it knows neither callers nor bounds. Its idle timer is not used,
//! because it would end a session during a running call.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::streams::{self, Streams, check_room};
use super::strip_event_ids::WithoutEventIds;
use crate::call::Caller;
use crate::http::problem::ApiError;

/// Most sessions at once.
const MAX_SESSIONS: usize = 1000;
/// Most sessions of one caller at once.
const MAX_PER_CALLER: usize = 250;
/// A session ends after this time without a request in flight and without an open stream.
const IDLE_TIME: Duration = Duration::from_secs(30 * 60);
/// When there are too many sessions, one that was unused for this time is ended for a new one.
const MIN_IDLE_TO_REPLACE: Duration = Duration::from_secs(60);

/// All sessions. Clones share them.
#[derive(Clone)]
pub(super) struct Sessions(Arc<Inner>);

struct Inner {
    manager: Arc<LocalSessionManager>,
    table: Mutex<Table>,
    ending: CancellationToken,
    max_total: usize,
    max_per_caller: usize,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<Arc<str>, Arc<Session>>,
    /// The owners of the sessions that are being opened, once for each such session.
    opening: Vec<Arc<str>>,
}

/// The host's side of one session.
pub(super) struct Session {
    id: Arc<str>,
    owner: Arc<str>,
    /// Tripped when the session ends.
    pub(super) ended: CancellationToken,
    pub(super) notifies: Arc<AtomicBool>,
    uses: Arc<Mutex<Uses>>,
    /// Read-locked while a request is inside rmcp, so that the session cannot be removed meanwhile.
    rmcp_lock: Arc<RwLock<()>>,
    /// The slot of the session's listening stream, while one is open.
    stream_slot: tokio::sync::Mutex<Weak<streams::StreamSlot>>,
}

struct Uses {
    /// Ids of the requests in flight.
    requests: HashSet<Value>,
    /// Number of requests and streams that use the session.
    count: usize,
    last_use: Instant,
    /// The session has ended: it cannot be used any more.
    ended: bool,
}

/// Why a request in a session is refused.
pub(super) enum UseError {
    /// The session has ended.
    Ended,
    /// A request with this id is in flight.
    IdInUse,
}

/// The slot of a session that is being opened. Dropping it ends the opening; a session that was
/// made of it keeps a slot of its own.
pub(super) struct SessionSlot {
    sessions: Sessions,
    owner: Arc<str>,
}

/// A listening stream that is being opened. Until it is dropped, no other request opens one in the
/// session.
pub(super) struct OpeningStream<'a> {
    pub(super) slot: Arc<streams::StreamSlot>,
    _lock: tokio::sync::MutexGuard<'a, Weak<streams::StreamSlot>>,
}

/// One use of a session by a request or a stream. Dropping it ends the use.
pub(super) struct SessionUse {
    uses: Arc<Mutex<Uses>>,
    request: Option<Value>,
}

impl Sessions {
    pub(super) fn new(ending: CancellationToken) -> Self {
        Self::with_limits(MAX_SESSIONS, MAX_PER_CALLER, ending)
    }

    fn with_limits(max_total: usize, max_per_caller: usize, ending: CancellationToken) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = None;
        manager.session_config.sse_retry = None;
        Self(Arc::new(Inner {
            manager: Arc::new(manager),
            table: Mutex::default(),
            ending,
            max_total,
            max_per_caller,
        }))
    }

    /// rmcp's session table, with events without ids.
    pub(super) fn rmcp_manager(&self) -> Arc<WithoutEventIds> {
        Arc::new(WithoutEventIds(self.0.manager.clone()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.table.lock().by_id.len()
    }

    /// The session with this id, if this caller owns it.
    pub(super) fn get(&self, id: &str, caller: &Caller) -> Option<Arc<Session>> {
        self.0
            .table
            .lock()
            .by_id
            .get(id)
            .filter(|session| session.owner == caller.name)
            .cloned()
    }

    /// Takes a slot for a new session of this caller. If there are too many sessions, ends the one
    /// that was unused longest.
    ///
    /// # Errors
    /// 503, if there are too many sessions in all, or too many of this caller, and none of them was
    /// unused for `MIN_IDLE_TO_REPLACE`.
    pub(super) fn reserve_slot(&self, caller: &Caller) -> Result<SessionSlot, ApiError> {
        let mut table = self.0.table.lock();
        let is_own = |owner: &Arc<str>| *owner == caller.name;
        let owners = table
            .by_id
            .values()
            .map(|session| &session.owner)
            .chain(&table.opening);
        let (all, own) = owners.fold((0, 0), |(all, own), owner| {
            (all + 1, own + usize::from(is_own(owner)))
        });
        let room = check_room(
            "MCP sessions",
            (all, self.0.max_total),
            (own, self.0.max_per_caller),
            caller,
        );
        // Chosen under the table's lock, but ended after it: `end_if` takes the same lock.
        let mut replaced = None;
        if let Err(refused) = room {
            // A caller that has reached its own bound loses a session of its own, and never costs
            // another caller one.
            let among = table
                .by_id
                .values()
                .filter(|session| own < self.0.max_per_caller || is_own(&session.owner));
            let idle = among.filter_map(|session| Some((session.idle_time()?, session)));
            let longest = idle
                .filter(|(idle, _)| *idle >= MIN_IDLE_TO_REPLACE)
                .max_by_key(|(idle, _)| *idle);
            replaced = Some(longest.ok_or(refused)?.1.clone());
        }
        table.opening.push(caller.name.clone());
        drop(table);
        // Between the choice above and this line, a request may use the chosen session. Then the
        // session stays, and there is one session too many for a while.
        replaced
            .iter()
            .for_each(|session| _ = self.end_if(session, |idle| idle.is_some()));
        Ok(SessionSlot {
            sessions: self.clone(),
            owner: caller.name.clone(),
        })
    }

    /// Closes the session's listening stream, if one is open, and takes or reuses its slot for a
    /// new one.
    ///
    /// A session has one listening stream: a client that opens another has lost the first. The lock
    /// in the answer keeps other requests from opening one until this one is open.
    ///
    /// # Errors
    /// As [`Streams::reserve_slot`].
    pub(super) async fn open_stream<'a>(
        &self,
        session: &'a Session,
        streams: &Streams,
        caller: &Caller,
    ) -> Result<OpeningStream<'a>, ApiError> {
        let mut stream_slot = session.stream_slot.lock().await;
        let slot = match stream_slot.upgrade() {
            Some(slot) => slot,
            None => Arc::new(streams.reserve_slot(caller)?),
        };
        *stream_slot = Arc::downgrade(&slot);
        let handle = self
            .0
            .manager
            .sessions
            .read()
            .await
            .get(&session.id)
            .cloned();
        if let Some(handle) = handle {
            // An error means that rmcp has ended the session. The request that follows then gets
            // rmcp's error.
            let _ = handle.close_standalone_sse_stream(None).await;
        }
        Ok(OpeningStream {
            slot,
            _lock: stream_slot,
        })
    }

    /// Ends a session and its requests. Returns `false` if it had ended before.
    pub(super) fn end(&self, session: &Session) -> bool {
        self.end_if(session, |_| true)
    }

    /// Ends a session if `condition` holds for the time since its last use (`None`: it is in use).
    /// Returns whether it did.
    ///
    /// `ended` is set under the lock of the uses, so no use can start between the check and the
    /// end. The order after that: our table forgets the session, its requests are cancelled, and
    /// rmcp closes the session last, once `rmcp_lock` is free. Otherwise a request could reach rmcp
    /// after its session is gone. rmcp's error for that contains the session's id, which is a
    /// secret.
    fn end_if(&self, session: &Session, condition: impl FnOnce(Option<Duration>) -> bool) -> bool {
        let ends = {
            let mut uses = session.uses.lock();
            let ends = !uses.ended && condition(uses.idle_time());
            uses.ended |= ends;
            ends
        };
        if ends {
            self.0.table.lock().by_id.remove(&session.id);
            session.ended.cancel();
            let (manager, id, rmcp_lock) = (
                self.0.manager.clone(),
                session.id.clone(),
                session.rmcp_lock.clone(),
            );
            // A task of its own, since the lock may wait for a client that reads slowly.
            let task = async move {
                let _no_request = rmcp_lock.write().await;
                manager.close_session(&id).await
            };
            tokio::spawn(task.boxed());
        }
        ends
    }

    /// Ends the session here if rmcp has ended it. Returns whether it did.
    pub(super) async fn end_if_rmcp_closed(&self, session: &Session) -> bool {
        let is_there = self.0.manager.has_session(&session.id).await;
        !is_there.unwrap_or_default() && self.end_if(session, |_| true)
    }

    async fn end_when_idle(self, session: Arc<Session>) {
        loop {
            let due =
                Instant::now() + IDLE_TIME.saturating_sub(session.idle_time().unwrap_or_default());
            tokio::select! {
                () = session.ended.cancelled() => return,
                () = sleep_until(due) => {}
            }
            if self.end_if(&session, |idle| idle.is_some_and(|idle| idle >= IDLE_TIME)) {
                return tracing::debug!(caller = %session.owner, "an MCP session has ended: it was idle for too long");
            }
        }
    }
}

impl SessionSlot {
    /// Makes the session, with the id that rmcp gave it.
    pub(super) fn create(self, id: &str) -> Arc<Session> {
        let Self { sessions, owner } = &self;
        let uses = Uses {
            requests: HashSet::new(),
            count: 0,
            last_use: Instant::now(),
            ended: false,
        };
        let session = Arc::new(Session {
            id: id.into(),
            owner: owner.clone(),
            ended: sessions.0.ending.child_token(),
            notifies: Arc::default(),
            uses: Arc::new(Mutex::new(uses)),
            rmcp_lock: Arc::default(),
            stream_slot: tokio::sync::Mutex::default(),
        });
        sessions
            .0
            .table
            .lock()
            .by_id
            .insert(session.id.clone(), session.clone());
        tokio::spawn(sessions.clone().end_when_idle(session.clone()).boxed());
        session
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut table = self.sessions.0.table.lock();
        if let Some(index) = table.opening.iter().position(|owner| *owner == self.owner) {
            table.opening.swap_remove(index);
        }
    }
}

impl Session {
    /// Starts a request. Its id must not be in flight in the session.
    pub(super) fn begin_request(&self, id: &Value) -> Result<SessionUse, UseError> {
        let mut session_use = self.begin_use()?;
        if !self.uses.lock().requests.insert(id.clone()) {
            return Err(UseError::IdInUse);
        }
        session_use.request = Some(id.clone());
        Ok(session_use)
    }

    /// Starts a use without a request id, such as a stream.
    pub(super) fn begin_use(&self) -> Result<SessionUse, UseError> {
        let mut uses = self.uses.lock();
        if uses.ended {
            return Err(UseError::Ended);
        }
        uses.count += 1;
        Ok(SessionUse {
            uses: self.uses.clone(),
            request: None,
        })
    }

    /// Waits for rmcp's `answer`, unless the session ends first. rmcp receives nothing for a
    /// session that has ended.
    pub(super) async fn run_until_ended<T>(
        &self,
        answer: impl Future<Output = T>,
    ) -> Result<T, UseError> {
        let _lock = self.rmcp_lock.read().await;
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(UseError::Ended),
            answer = answer => Ok(answer),
        }
    }

    /// Time since the last use; `None` while the session is in use.
    fn idle_time(&self) -> Option<Duration> {
        self.uses.lock().idle_time()
    }
}

impl Uses {
    fn idle_time(&self) -> Option<Duration> {
        (self.count == 0).then(|| self.last_use.elapsed())
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let mut uses = self.uses.lock();
        uses.count -= 1;
        uses.last_use = Instant::now();
        if let Some(id) = &self.request {
            uses.requests.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn create_session(sessions: &Sessions, id: &str) -> Arc<Session> {
        create_session_of(sessions, id, &Caller::anonymous())
    }

    fn create_session_of(sessions: &Sessions, id: &str, caller: &Caller) -> Arc<Session> {
        sessions.reserve_slot(caller).unwrap().create(id);
        sessions.get(id, caller).unwrap()
    }

    fn has_session(sessions: &Sessions, id: &str) -> bool {
        sessions.get(id, &Caller::anonymous()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_ends() {
        let sessions = Sessions::with_limits(2, 2, CancellationToken::new());
        let (used, unused) = (
            create_session(&sessions, "used"),
            create_session(&sessions, "unused"),
        );
        let stream = used.begin_use().ok();
        sleep_until(Instant::now() + IDLE_TIME + Duration::from_secs(1)).await;
        assert!(has_session(&sessions, "used") && !has_session(&sessions, "unused"));
        assert!(unused.ended.is_cancelled());
        drop(stream);
        sleep_until(Instant::now() + IDLE_TIME - Duration::from_secs(1)).await;
        assert!(
            has_session(&sessions, "used"),
            "its idle time begins with its last use"
        );
        sleep_until(Instant::now() + Duration::from_secs(2)).await;
        assert!(!has_session(&sessions, "used"));
    }

    #[tokio::test(start_paused = true)]
    async fn new_session_replaces_the_longest_idle() {
        let sessions = Sessions::with_limits(3, 3, CancellationToken::new());
        let busy = create_session(&sessions, "busy");
        let call = busy.begin_request(&Value::from(1)).ok();
        create_session(&sessions, "old");
        advance(Duration::from_secs(30)).await;
        create_session(&sessions, "young");
        let full = sessions.reserve_slot(&Caller::anonymous()).err().unwrap();
        assert!(
            matches!(full, ApiError::Call { failure, .. } if failure.retry_after_ms == Some(5000))
        );
        advance(Duration::from_secs(31)).await;
        create_session(&sessions, "new");
        assert!(!has_session(&sessions, "old"));
        assert!(
            ["busy", "young", "new"]
                .into_iter()
                .all(|id| has_session(&sessions, id))
        );
        drop(call);
    }

    #[tokio::test(start_paused = true)]
    async fn caller_at_limit_replaces_its_own_session() {
        let sessions = Sessions::with_limits(8, 2, CancellationToken::new());
        let [ann, bob] = ["ann", "bob"].map(|name| Caller::new(name, false));
        create_session_of(&sessions, "b1", &bob);
        advance(Duration::from_secs(1)).await;
        create_session_of(&sessions, "a1", &ann);
        let opening = sessions.reserve_slot(&ann).unwrap();
        assert!(
            sessions.reserve_slot(&ann).is_err(),
            "one that is being opened counts"
        );
        advance(Duration::from_secs(1)).await;
        opening.create("a2");
        create_session_of(&sessions, "b2", &bob);
        advance(MIN_IDLE_TO_REPLACE).await;
        create_session_of(&sessions, "a3", &ann);
        let there = |id, caller| sessions.get(id, caller).is_some();
        assert!(!there("a1", &ann) && there("a2", &ann) && there("a3", &ann) && there("b1", &bob));
    }

    #[tokio::test(start_paused = true)]
    async fn session_in_use_does_not_end() {
        let sessions = Sessions::with_limits(1, 1, CancellationToken::new());
        let used = create_session(&sessions, "used");
        let session_use = used.begin_use().ok();
        assert!(
            !sessions.end_if(&used, |idle| idle.is_some()),
            "a use came after the choice"
        );
        drop(session_use);
        assert!(sessions.end(&used) && !sessions.end(&used));
        assert!(matches!(
            used.begin_request(&Value::from(1)),
            Err(UseError::Ended)
        ));
        assert!(matches!(
            used.run_until_ended(async {}).await,
            Err(UseError::Ended)
        ));
    }

    #[tokio::test]
    async fn dropped_slot_is_free() {
        let sessions = Sessions::with_limits(1, 1, CancellationToken::new());
        let slot = sessions.reserve_slot(&Caller::anonymous()).unwrap();
        assert!(sessions.reserve_slot(&Caller::anonymous()).is_err());
        drop(slot);
        assert!(sessions.reserve_slot(&Caller::anonymous()).is_ok());
    }

    #[tokio::test]
    async fn sessions_end_with_the_service() {
        let ending = CancellationToken::new();
        let session = create_session(&Sessions::new(ending.clone()), "s");
        ending.cancel();
        assert!(session.ended.is_cancelled());
    }
}
