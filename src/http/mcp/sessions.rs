//! The sessions of MCP versions until 2025-11-25: their owners, their number and their end.
//!
//! rmcp keeps the sessions, but it knows neither callers nor bounds. Its idle timer is not used, because it would end a
//! session during a running call.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::streams::{self, Streams, full};
use super::strip_event_ids::Unnumbered;
use crate::call::Caller;
use crate::http::problem::ApiError;

/// Most sessions at once.
const MOST: usize = 1000;
/// Most sessions of one caller at once.
const EACH: usize = 250;
/// A session ends after this time without a request under way and without an open stream.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// When there are too many sessions, one that was unused for this time is ended for a new one.
const SPARED: Duration = Duration::from_secs(60);

/// All sessions. Clones share them.
#[derive(Clone)]
pub(super) struct Sessions(Arc<Inner>);

struct Inner {
    manager: Arc<LocalSessionManager>,
    table: Mutex<Table>,
    ending: CancellationToken,
    most: usize,
    each: usize,
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
    left: CancellationToken,
    told: Arc<AtomicBool>,
    uses: Arc<Mutex<Uses>>,
    /// Read-locked while a request is inside rmcp, so that the session cannot be removed meanwhile.
    asking: Arc<RwLock<()>>,
    /// The slot of the session's listening stream, while one is open.
    listening: tokio::sync::Mutex<Weak<streams::StreamSlot>>,
}

struct Uses {
    /// Ids of the requests under way.
    requests: HashSet<Value>,
    /// Number of requests and streams that use the session.
    open: usize,
    last: Instant,
    /// The session has ended: it cannot be used any more.
    ended: bool,
}

/// Why a request in a session is refused.
pub(super) enum Refused {
    /// The session has ended.
    Gone,
    /// A request with this id is under way.
    IdInUse,
}

/// The slot of a session that is being opened. Dropping it ends the opening; a session that was made of it keeps a slot
/// of its own.
pub(super) struct SessionSlot {
    sessions: Sessions,
    owner: Arc<str>,
}

/// A listening stream that is being opened. Until it is dropped, no other request opens one in the session.
pub(super) struct Listening<'a> {
    pub(super) place: Arc<streams::StreamSlot>,
    _alone: tokio::sync::MutexGuard<'a, Weak<streams::StreamSlot>>,
}

/// One use of a session by a request or a stream. Dropping it ends the use.
pub(super) struct Use {
    uses: Arc<Mutex<Uses>>,
    request: Option<Value>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    pub(super) fn new(ending: CancellationToken) -> Self {
        Self::with_most(MOST, EACH, ending)
    }

    fn with_most(most: usize, each: usize, ending: CancellationToken) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = None;
        manager.session_config.sse_retry = None;
        Self(Arc::new(Inner { manager: Arc::new(manager), table: Mutex::default(), ending, most, each }))
    }

    /// rmcp's session table, with events without ids.
    pub(super) fn manager(&self) -> Arc<Unnumbered> {
        Arc::new(Unnumbered(self.0.manager.clone()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0.table).by_id.len()
    }

    /// The session with this id, if this caller owns it.
    pub(super) fn get(&self, id: &str, caller: &Caller) -> Option<Arc<Session>> {
        lock(&self.0.table).by_id.get(id).filter(|session| session.owner == caller.name).cloned()
    }

    /// Takes a slot for a new session of this caller. If there are too many sessions, ends the one that was unused
    /// longest.
    ///
    /// # Errors
    /// 503, if there are too many sessions in all, or too many of this caller, and none of them was unused for
    /// `SPARED`.
    pub(super) fn place(&self, caller: &Caller) -> Result<SessionSlot, ApiError> {
        let mut table = lock(&self.0.table);
        let is_own = |owner: &Arc<str>| *owner == caller.name;
        let owners = table.by_id.values().map(|session| &session.owner).chain(&table.opening);
        let (all, own) = owners.fold((0, 0), |(all, own), owner| (all + 1, own + usize::from(is_own(owner))));
        let room = full("sessions", (all, self.0.most), (own, self.0.each), caller);
        // Chosen under the table's lock, but ended after it: `end_if` takes the same lock.
        let mut idlest = None;
        if let Err(refused) = room {
            // A caller that has reached its own bound loses a session of its own, and never costs another caller one.
            let among = table.by_id.values().filter(|session| own < self.0.each || is_own(&session.owner));
            let idle = among.filter_map(|session| Some((session.idle()?, session)));
            let longest = idle.filter(|(idle, _)| *idle >= SPARED).max_by_key(|(idle, _)| *idle);
            idlest = Some(longest.ok_or(refused)?.1.clone());
        }
        table.opening.push(caller.name.clone());
        drop(table);
        // Between the choice above and this line, a request may use the chosen session. Then the session stays, and
        // there is one session too many for a while.
        idlest.iter().for_each(|session| _ = self.end_if(session, |idle| idle.is_some()));
        Ok(SessionSlot { sessions: self.clone(), owner: caller.name.clone() })
    }

    /// Closes the session's listening stream, if one is open, and takes or reuses its slot for a new one.
    ///
    /// A session has one listening stream: a client that opens another has lost the first. The lock in the answer keeps
    /// other requests from opening one until this one is open.
    ///
    /// # Errors
    /// As [`Streams::place`].
    pub(super) async fn listen<'a>(
        &self,
        session: &'a Session,
        streams: &Streams,
        caller: &Caller,
    ) -> Result<Listening<'a>, ApiError> {
        let mut listening = session.listening.lock().await;
        let place = match listening.upgrade() {
            Some(place) => place,
            None => Arc::new(streams.place(caller)?),
        };
        *listening = Arc::downgrade(&place);
        let handle = self.0.manager.sessions.read().await.get(&session.id).cloned();
        if let Some(handle) = handle {
            // An error means that rmcp has ended the session. The request that follows then gets rmcp's error.
            let _ = handle.close_standalone_sse_stream(None).await;
        }
        Ok(Listening { place, _alone: listening })
    }

    /// Ends a session and its requests. Returns `false` if it had ended before.
    pub(super) fn end(&self, session: &Session) -> bool {
        self.end_if(session, |_| true)
    }

    /// Ends a session if `right` holds for the time since its last use (`None`: it is in use). Returns whether it did.
    ///
    /// `ended` is set under the lock of the uses, so no use can start between the check and the end. The order after
    /// that: our table forgets the session, its requests are cancelled, and rmcp closes the session last, once `asking`
    /// is free. Otherwise a request could reach rmcp after its session is gone. rmcp's error for that contains the
    /// session's id, which is a secret.
    fn end_if(&self, session: &Session, right: impl FnOnce(Option<Duration>) -> bool) -> bool {
        let ends = {
            let mut uses = lock(&session.uses);
            let ends = !uses.ended && right(uses.idle());
            uses.ended |= ends;
            ends
        };
        if ends {
            lock(&self.0.table).by_id.remove(&session.id);
            session.left.cancel();
            let (manager, id, asking) = (self.0.manager.clone(), session.id.clone(), session.asking.clone());
            // A task of its own, since the lock may wait for a client that reads slowly.
            tokio::spawn(async move {
                let _nobody_asks = asking.write().await;
                manager.close_session(&id).await
            });
        }
        ends
    }

    /// Ends the session here if rmcp has ended it. Returns whether it did.
    pub(super) async fn end_if_lost(&self, session: &Session) -> bool {
        let is_there = self.0.manager.has_session(&session.id).await;
        !is_there.unwrap_or_default() && self.end_if(session, |_| true)
    }

    async fn end_when_idle(self, session: Arc<Session>) {
        loop {
            let due = Instant::now() + IDLE.saturating_sub(session.idle().unwrap_or_default());
            tokio::select! {
                () = session.left.cancelled() => return,
                () = sleep_until(due) => {}
            }
            if self.end_if(&session, |idle| idle.is_some_and(|idle| idle >= IDLE)) {
                return tracing::debug!(caller = %session.owner, "an MCP session has ended: nobody used it");
            }
        }
    }
}

impl SessionSlot {
    /// Makes the session, with the id that rmcp gave it.
    pub(super) fn take(self, id: &str) -> Arc<Session> {
        let Self { sessions, owner } = &self;
        let uses = Uses { requests: HashSet::new(), open: 0, last: Instant::now(), ended: false };
        let session = Arc::new(Session {
            id: id.into(),
            owner: owner.clone(),
            left: sessions.0.ending.child_token(),
            told: Arc::default(),
            uses: Arc::new(Mutex::new(uses)),
            asking: Arc::default(),
            listening: tokio::sync::Mutex::default(),
        });
        lock(&sessions.0.table).by_id.insert(session.id.clone(), session.clone());
        tokio::spawn(sessions.clone().end_when_idle(session.clone()));
        session
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut table = lock(&self.sessions.0.table);
        if let Some(one) = table.opening.iter().position(|owner| *owner == self.owner) {
            table.opening.swap_remove(one);
        }
    }
}

impl Session {
    pub(super) fn left(&self) -> &CancellationToken {
        &self.left
    }

    pub(super) fn told(&self) -> &Arc<AtomicBool> {
        &self.told
    }

    /// Starts a request. Its id must not be under way in the session.
    pub(super) fn begin(&self, id: &Value) -> Result<Use, Refused> {
        let mut visit = self.visit()?;
        if !lock(&self.uses).requests.insert(id.clone()) {
            return Err(Refused::IdInUse);
        }
        visit.request = Some(id.clone());
        Ok(visit)
    }

    /// Starts a use without a request id, such as a stream.
    pub(super) fn visit(&self) -> Result<Use, Refused> {
        let mut uses = lock(&self.uses);
        if uses.ended {
            return Err(Refused::Gone);
        }
        uses.open += 1;
        Ok(Use { uses: self.uses.clone(), request: None })
    }

    /// Waits for rmcp's answer `asked`, unless the session ends first. rmcp receives nothing for a session that has
    /// ended.
    pub(super) async fn answer<T>(&self, asked: impl Future<Output = T>) -> Result<T, Refused> {
        let _asking = self.asking.read().await;
        tokio::select! {
            biased;
            () = self.left.cancelled() => Err(Refused::Gone),
            answer = asked => Ok(answer),
        }
    }

    /// Time since the last use; `None` while the session is in use.
    fn idle(&self) -> Option<Duration> {
        lock(&self.uses).idle()
    }
}

impl Uses {
    fn idle(&self) -> Option<Duration> {
        (self.open == 0).then(|| self.last.elapsed())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut uses = lock(&self.uses);
        uses.open -= 1;
        uses.last = Instant::now();
        if let Some(id) = &self.request {
            uses.requests.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn opened(sessions: &Sessions, id: &str) -> Arc<Session> {
        opened_by(sessions, id, &Caller::anonymous())
    }

    fn opened_by(sessions: &Sessions, id: &str, caller: &Caller) -> Arc<Session> {
        sessions.place(caller).unwrap().take(id);
        sessions.get(id, caller).unwrap()
    }

    fn is_there(sessions: &Sessions, id: &str) -> bool {
        sessions.get(id, &Caller::anonymous()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_nobody_has_used_it_for_long() {
        let sessions = Sessions::with_most(2, 2, CancellationToken::new());
        let (used, unused) = (opened(&sessions, "used"), opened(&sessions, "unused"));
        let stream = used.visit().ok();
        sleep_until(Instant::now() + IDLE + Duration::from_secs(1)).await;
        assert!(is_there(&sessions, "used") && !is_there(&sessions, "unused"));
        assert!(unused.left().is_cancelled());
        drop(stream);
        sleep_until(Instant::now() + IDLE - Duration::from_secs(1)).await;
        assert!(is_there(&sessions, "used"), "its time begins with its last use");
        sleep_until(Instant::now() + Duration::from_secs(2)).await;
        assert!(!is_there(&sessions, "used"));
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_the_one_unused_longest_makes_room() {
        let sessions = Sessions::with_most(3, 3, CancellationToken::new());
        let busy = opened(&sessions, "busy");
        let call = busy.begin(&Value::from(1)).ok();
        opened(&sessions, "old");
        advance(Duration::from_secs(30)).await;
        opened(&sessions, "young");
        let full = sessions.place(&Caller::anonymous()).err().unwrap();
        assert!(matches!(full, ApiError::Call { failure, .. } if failure.retry_after_ms == Some(5000)));
        advance(Duration::from_secs(31)).await;
        opened(&sessions, "new");
        assert!(!is_there(&sessions, "old"));
        assert!(["busy", "young", "new"].into_iter().all(|id| is_there(&sessions, id)));
        drop(call);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_all_that_one_caller_may_have_makes_room_for_itself() {
        let sessions = Sessions::with_most(8, 2, CancellationToken::new());
        let [ann, bob] = ["ann", "bob"].map(|name| Caller { name: name.into(), admin: false });
        opened_by(&sessions, "b1", &bob);
        advance(Duration::from_secs(1)).await;
        opened_by(&sessions, "a1", &ann);
        let opening = sessions.place(&ann).unwrap();
        assert!(sessions.place(&ann).is_err(), "one that is being opened counts");
        advance(Duration::from_secs(1)).await;
        opening.take("a2");
        opened_by(&sessions, "b2", &bob);
        advance(SPARED).await;
        opened_by(&sessions, "a3", &ann);
        let there = |id, caller| sessions.get(id, caller).is_some();
        assert!(!there("a1", &ann) && there("a2", &ann) && there("a3", &ann) && there("b1", &bob));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_has_ended_is_not_used_and_one_that_is_used_does_not_end() {
        let sessions = Sessions::with_most(1, 1, CancellationToken::new());
        let used = opened(&sessions, "used");
        let visit = used.visit().ok();
        assert!(!sessions.end_if(&used, |idle| idle.is_some()), "it was chosen before it was used");
        drop(visit);
        assert!(sessions.end(&used) && !sessions.end(&used));
        assert!(matches!(used.begin(&Value::from(1)), Err(Refused::Gone)));
        assert!(matches!(used.answer(async {}).await, Err(Refused::Gone)));
    }

    #[tokio::test]
    async fn a_place_that_no_session_took_is_free_again() {
        let sessions = Sessions::with_most(1, 1, CancellationToken::new());
        let place = sessions.place(&Caller::anonymous()).unwrap();
        assert!(sessions.place(&Caller::anonymous()).is_err());
        drop(place);
        assert!(sessions.place(&Caller::anonymous()).is_ok());
    }

    #[tokio::test]
    async fn sessions_end_with_the_service() {
        let ending = CancellationToken::new();
        let session = opened(&Sessions::new(ending.clone()), "s");
        ending.cancel();
        assert!(session.left().is_cancelled());
    }
}
