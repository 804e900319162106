//! The sessions of versions until 2025-11-25: whose they are, how many there may be, when they end.
//!
//! rmcp keeps them; it knows neither callers nor bounds, and its own idle time ends a session under a running call.

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
use super::unnumbered::Unnumbered;
use crate::call::Caller;
use crate::http::problem::ApiError;

/// Sessions at once.
const MOST: usize = 1000;
/// Of these, such as one caller may have.
const EACH: usize = 250;
/// A session that nobody has used for so long ends: no request under way, no stream open.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Where there are too many, one that was not used for so long makes room for a new one.
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
    /// Whose sessions are being opened.
    opening: Vec<Arc<str>>,
}

/// One session.
pub(super) struct Session {
    id: Arc<str>,
    owner: Arc<str>,
    /// Tripped when it ends.
    left: CancellationToken,
    told: Arc<AtomicBool>,
    uses: Arc<Mutex<Uses>>,
    /// Held by who asks rmcp for something in it: nobody may find it gone there.
    asking: Arc<RwLock<()>>,
    /// The place of the stream that listens, while there is one.
    listening: tokio::sync::Mutex<Weak<streams::Place>>,
}

struct Uses {
    /// Ids of requests under way.
    requests: HashSet<Value>,
    /// How many hold it: requests and streams.
    open: usize,
    last: Instant,
    /// No use begins any more.
    ended: bool,
}

/// Why nothing can be asked in a session.
pub(super) enum Refused {
    /// It has ended.
    Gone,
    /// A request with this id is under way.
    IdInUse,
}

/// A place for a session that is being opened.
pub(super) struct Place {
    sessions: Sessions,
    owner: Arc<str>,
}

/// A stream that is being opened.
pub(super) struct Listening<'a> {
    pub(super) place: Arc<streams::Place>,
    _alone: tokio::sync::MutexGuard<'a, Weak<streams::Place>>,
}

/// One use of a session, over when it is dropped.
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

    /// rmcp's own table.
    pub(super) fn manager(&self) -> Arc<Unnumbered> {
        Arc::new(Unnumbered(self.0.manager.clone()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0.table).by_id.len()
    }

    /// The session of that id, if it is this caller's.
    pub(super) fn get(&self, id: &str, caller: &Caller) -> Option<Arc<Session>> {
        lock(&self.0.table).by_id.get(id).filter(|session| session.owner == caller.name).cloned()
    }

    /// A place for a new session of this caller.
    ///
    /// # Errors
    /// 503, when there are too many that are in use, or too many of this caller's.
    pub(super) fn place(&self, caller: &Caller) -> Result<Place, ApiError> {
        let mut table = lock(&self.0.table);
        let is_own = |owner: &Arc<str>| *owner == caller.name;
        let owners = table.by_id.values().map(|session| &session.owner).chain(&table.opening);
        let (all, own) = owners.fold((0, 0), |(all, own), owner| (all + 1, own + usize::from(is_own(owner))));
        let room = full("sessions", (all, self.0.most), (own, self.0.each), caller);
        let mut idlest = None;
        if let Err(refused) = room {
            // Whoever has all that one may have makes room for itself.
            let among = table.by_id.values().filter(|session| own < self.0.each || is_own(&session.owner));
            let idle = among.filter_map(|session| Some((session.idle()?, session)));
            let longest = idle.filter(|(idle, _)| *idle >= SPARED).max_by_key(|(idle, _)| *idle);
            idlest = Some(longest.ok_or(refused)?.1.clone());
        }
        table.opening.push(caller.name.clone());
        drop(table);
        // One that is used again just now stays: then there is one too many for a while.
        idlest.iter().for_each(|session| _ = self.end_if(session, |idle| idle.is_some()));
        Ok(Place { sessions: self.clone(), owner: caller.name.clone() })
    }

    /// Makes room for a new stream that listens in this session, of which there is one: whoever opens another has lost the one before.
    /// Until it is open, nobody else opens one.
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
            // An error: rmcp has ended it, and says so to whoever asks.
            let _ = handle.close_standalone_sse_stream(None).await;
        }
        Ok(Listening { place, _alone: listening })
    }

    /// Ends a session, and with it what is under way in it. `false`: it has ended before.
    pub(super) fn end(&self, session: &Session) -> bool {
        self.end_if(session, |_| true)
    }

    /// The same, if that is right with how long nobody has used it (`None`: somebody does).
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
            // It may wait for a client that reads slowly.
            tokio::spawn(async move {
                let _nobody_asks = asking.write().await;
                manager.close_session(&id).await
            });
        }
        ends
    }

    /// Ends a session that rmcp has ended, if it has.
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

impl Place {
    /// The session has this id.
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

impl Drop for Place {
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

    /// Begins a request.
    pub(super) fn begin(&self, id: &Value) -> Result<Use, Refused> {
        let mut visit = self.visit()?;
        if !lock(&self.uses).requests.insert(id.clone()) {
            return Err(Refused::IdInUse);
        }
        visit.request = Some(id.clone());
        Ok(visit)
    }

    /// Anything else that holds it open.
    pub(super) fn visit(&self) -> Result<Use, Refused> {
        let mut uses = lock(&self.uses);
        if uses.ended {
            return Err(Refused::Gone);
        }
        uses.open += 1;
        Ok(Use { uses: self.uses.clone(), request: None })
    }

    /// What rmcp answers in it, unless it ends before.
    pub(super) async fn answer<T>(&self, asked: impl Future<Output = T>) -> Result<T, Refused> {
        let _asking = self.asking.read().await;
        tokio::select! {
            biased;
            () = self.left.cancelled() => Err(Refused::Gone),
            answer = asked => Ok(answer),
        }
    }

    /// For how long nobody has used it; `None` while somebody does.
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
