//! What was listed in the place of what was served.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::bring::Start;
use super::tools::NotOffered;
use super::{Board, Draft, Kept, Listing, Serving, SourceView, Sources, Stopped, Watching};
use crate::blocking;
use crate::live::reload::warn_of;
use crate::live::seen::Seen;
use crate::live::{Error, Live, Remembered, State};
use crate::manifest::DeclaredSource;
use crate::printable;
use crate::registry::{Aside, Replaced, Seated, World};
use crate::tools::{Listed, Source};

/// What became of a listing.
pub(super) enum Came {
    /// Its tools are served.
    Served,
    /// Another start has taken its place, or the source is gone.
    Stale,
    /// Why not.
    Refused(String),
    /// Why not, and that another start would come to the same.
    Unusable(String),
}

/// A source that is started anew because somebody asked for it.
pub struct Restarting {
    board: Arc<Board>,
    number: u64,
}

/// Sources with their files as they are now.
pub(in crate::live) async fn look(declared: Vec<DeclaredSource>) -> Option<Vec<(Arc<DeclaredSource>, Seen)>> {
    let look = move || {
        let look = |one: DeclaredSource| (Arc::new(one.clone()), Seen::of(one.settings.files()));
        declared.into_iter().map(look).collect()
    };
    blocking::on_a_thread(look).await
}

impl Sources {
    fn get(&mut self, name: &str) -> Option<&mut Kept> {
        self.0.iter_mut().find(|kept| &*kept.board.name == name)
    }

    /// The files that sources were started from.
    pub(in crate::live) fn files(&self) -> Vec<(Arc<str>, Seen)> {
        self.0.iter().map(|kept| (kept.board.name.clone(), kept.files.clone())).collect()
    }

    /// Keeps in mind how files look that say the same.
    pub(in crate::live) fn looked(&mut self, now: Vec<(Arc<str>, Seen)>) {
        for (name, files) in now {
            if let Some(kept) = self.get(&name).filter(|kept| kept.files.says_the_same(&files)) {
                kept.files = files;
            }
        }
    }

    /// What this source would be under another manifest.
    fn draft(&self, declared: Arc<DeclaredSource>, files: Seen, late: bool) -> Draft {
        let before = self.0.iter().find(|kept| &*kept.board.name == declared.name());
        Draft::new(before, declared, files, late)
    }
}

impl Live {
    /// Puts a world and the manifest's sources in the place of what is there. Sources that are the same run on; others
    /// are started beside what is served, and swapped in when they are listed.
    pub(in crate::live) async fn put_sources(
        self: &Arc<Self>,
        sources: &mut Sources,
        world: &Remembered,
        declared: Vec<(Arc<DeclaredSource>, Seen)>,
    ) -> Result<Vec<Aside>, Error> {
        let late = self.has_started();
        let drafts = declared.into_iter().map(|(one, files)| sources.draft(one, files, late)).collect();
        let before: HashMap<Arc<str>, _> = sources
            .0
            .iter()
            .map(|kept| (kept.board.name.clone(), (kept.declared.clone(), kept.files.clone())))
            .collect();
        let aside = self.renew(sources, world, drafts).await?;
        for kept in &mut sources.0 {
            let same = before.get(&kept.board.name);
            let same = same
                .is_some_and(|(one, files)| one.settings == kept.declared.settings && files.says_the_same(&kept.files));
            match &kept.start {
                Some(start) if same && start.is_under_way() => start.try_now(),
                _ if same && kept.serving.is_some() => {}
                _ => {
                    self.begin(kept, same);
                }
            }
        }
        Ok(aside)
    }

    fn begin(self: &Arc<Self>, kept: &mut Kept, wait: bool) -> u64 {
        let start = Start::new(self, &kept.board, &kept.declared.settings, wait);
        let number = start.number;
        kept.start = Some(start);
        number
    }

    /// Builds the catalog of this world, and keeps in mind what became of each source.
    async fn renew(
        self: &Arc<Self>,
        sources: &mut Sources,
        world: &Remembered,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Aside>, Error> {
        let registered = self.registered(world.defaults.clone()).await?;
        let mut groups: Vec<_> = drafts.iter().map(Draft::group).collect();
        for tool in groups.iter_mut().flat_map(|group| group.choices.iter_mut().flatten().chain(&mut group.otherwise)) {
            self.plan.deny(tool);
        }
        let Remembered { callers, calls, tools, .. } = world;
        let next = World { callers: callers.clone(), calls: calls.clone(), tools: tools.clone(), groups, registered };
        let Replaced { seated, aside } = self.registry.replace(next).await?;
        let mut before: HashMap<Arc<str>, Kept> =
            sources.0.drain(..).map(|kept| (kept.board.name.clone(), kept)).collect();
        let kept = drafts.into_iter().zip(seated).map(|(draft, seated)| {
            let (start, watching) =
                before.remove(&draft.board.name).map_or((None, None), |kept| (kept.start, kept.watching));
            self.settle(draft, seated, start, watching)
        });
        sources.0 = kept.collect();
        self.shown.store(Arc::new(sources.0.iter().map(|kept| kept.board.clone()).collect()));
        self.told.send_replace(());
        Ok(aside)
    }

    fn settle(
        self: &Arc<Self>,
        draft: Draft,
        seated: Seated,
        start: Option<Start>,
        watching: Option<Watching>,
    ) -> Kept {
        let Draft { declared, files, board, mut candidates, fault, is_new, mut listed, .. } = draft;
        let Seated { choice, refused, left_out } = seated;
        let refused = fault.or(refused.into_iter().next()).map(|why| self.clean(&why));
        let (there_were, is_first) = (!candidates.is_empty(), choice == Some(0));
        let serving = choice.map(|at| candidates.swap_remove(at));
        match &serving {
            // As it was, and as it was said to be.
            Some(_) if is_first && !is_new => {}
            Some(serving) => {
                listed = serving.listing.offers.iter().map(|offer| offer.name.clone()).collect();
                let (odd, stopped) = board.serve(serving, refused.clone().map(|why| (why, self.now())));
                self.say_what_is_odd(&board.name, &odd, &stopped);
            }
            None if there_were => {
                let why = refused.clone().unwrap_or_default();
                tracing::error!(source = &*board.name, why, "nothing of a source can be served");
                board.serve_nothing((why, self.now()));
            }
            None => {}
        }
        let odd = board.leave_out(left_out.iter().map(|out| out.why.clone()).collect());
        self.say_what_is_odd(&board.name, &odd, &[]);
        let watching = serving.as_ref().map(|serving| {
            let same = watching.filter(|watching| watching.is_of(&serving.source));
            same.unwrap_or_else(|| Watching::new(self, &board, &serving.source))
        });
        Kept { declared, files, board, serving, refused, left_out, listed, start, watching }
    }

    fn say_what_is_odd(&self, source: &str, odd: &[String], stopped: &[Stopped]) {
        for warning in odd {
            tracing::warn!(source, "{}", self.clean(warning));
        }
        for Stopped { tool, why } in stopped {
            let why = self.clean(why);
            tracing::warn!(source, tool, why, "a tool is stopped until `toolcrib pin` approves it");
        }
    }

    fn now(&self) -> Timestamp {
        self.registry.shared().clock.now()
    }

    /// A start has listed its tools.
    pub(super) async fn listed(
        self: &Arc<Self>,
        name: &str,
        number: u64,
        source: Arc<dyn Source>,
        listed: Listed,
    ) -> Came {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let is_stale = |kept: &Kept| kept.start.as_ref().is_none_or(|start| start.number != number);
        let Some(kept) = state.sources.get(name).filter(|kept| !is_stale(kept)) else { return Came::Stale };
        let listing = Arc::new(Listing::of(&kept.declared, listed));
        let declared = (kept.declared.clone(), kept.files.clone());
        let came = self.swap_in(state, name, declared, source, listing).await;
        if let (Came::Served, Some(kept)) = (&came, state.sources.get(name)) {
            kept.board.end(number, None, None);
            self.told.send_replace(());
        }
        self.judge_lists();
        came
    }

    /// What is served was asked for its tools once more.
    pub(super) async fn listed_again(self: &Arc<Self>, name: &str, source: &Arc<dyn Source>, listed: Listed) -> Came {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let Some(kept) = state.sources.get(name) else { return Came::Stale };
        let Some(serving) = kept.serving.as_ref().filter(|serving| Arc::ptr_eq(&serving.source, source)) else {
            return Came::Stale;
        };
        let mut listing = Listing::of(&serving.declared, listed);
        if listing.says_the_same(&serving.listing) {
            tracing::debug!(source = name, "a source was listed again: its tools are what they were");
            kept.board.is_as_it_was();
            return Came::Served;
        }
        listing.keep_runners(&serving.listing);
        // While another that is wanted in its place does not come up, it is still what it was declared as.
        let declared = match serving.is_of(&kept.declared, &kept.files) {
            true => (kept.declared.clone(), kept.files.clone()),
            false => (serving.declared.clone(), serving.files.clone()),
        };
        let came = self.swap_in(state, name, declared, source.clone(), Arc::new(listing)).await;
        self.judge_lists();
        came
    }

    /// Puts a listing in the place of what is served of this source.
    async fn swap_in(
        self: &Arc<Self>,
        state: &mut State,
        name: &str,
        (declared, files): (Arc<DeclaredSource>, Seen),
        source: Arc<dyn Source>,
        listing: Arc<Listing>,
    ) -> Came {
        let Some(kept) = state.sources.get(name) else { return Came::Stale };
        let fresh = match Serving::new(&declared, &files, source, listing.clone(), &kept.listed) {
            Ok(fresh) => fresh,
            Err(NotOffered { why, is_lasting: true }) => return Came::Unusable(why),
            Err(NotOffered { why, .. }) => return Came::Refused(why),
        };
        let mut drafts: Vec<Draft> = state.sources.0.iter().map(Draft::of).collect();
        for draft in drafts.iter_mut().filter(|draft| &*draft.board.name == name) {
            draft.candidates.insert(0, fresh.clone());
            draft.is_new = true;
        }
        match self.renew(&mut state.sources, &state.world, drafts).await {
            Ok(aside) => warn_of(&aside),
            Err(error) => return Came::Refused(error.to_string()),
        }
        self.seat_left_out(state).await;
        // This listing may have taken the names of another source, which was listed and rests.
        for kept in state.sources.0.iter_mut().filter(|kept| kept.serving.is_none() && !kept.is_starting()) {
            self.begin(kept, true);
        }
        let Some(kept) = state.sources.get(name) else { return Came::Stale };
        let is_served = kept.serving.as_ref().is_some_and(|serving| Arc::ptr_eq(&serving.listing, &listing));
        if !is_served {
            return Came::Refused(kept.refused.clone().unwrap_or_default());
        }
        tracing::info!(source = name, tools = listing.offers.len(), "a source was listed");
        Came::Served
    }

    /// A name that a tool was left out for may be free now.
    pub(in crate::live) async fn seat_left_out(self: &Arc<Self>, state: &mut State) {
        if state.sources.0.iter().any(|kept| !kept.left_out.is_empty()) {
            let drafts = state.sources.0.iter().map(Draft::of).collect();
            // What is set aside was told just before.
            if let Err(error) = self.renew(&mut state.sources, &state.world, drafts).await {
                tracing::error!(%error, "what was left out cannot be looked at again");
            }
        }
    }

    /// A start has failed; it is tried again after `pause`. `None`: not before something has changed or somebody asks.
    pub(super) fn failed(&self, board: &Board, number: u64, why: &str, pause: Option<Duration>) {
        let why = self.clean(why);
        match pause {
            Some(pause) => {
                let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::error!(source = &*board.name, why, wait_ms, "a source failed; it is tried again");
            }
            None => tracing::error!(
                source = &*board.name,
                why,
                "a source cannot be used; it is tried again when its file or the manifest has changed, or when it is restarted"
            ),
        }
        board.end(number, Some((why, self.now())), pause);
        self.told.send_replace(());
        self.judge_lists();
    }

    /// What is served could not be listed again; it is tried again after `pause`.
    pub(super) fn failed_again(&self, board: &Board, why: &str, pause: Duration) {
        let why = self.clean(why);
        let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::error!(
            source = &*board.name,
            why,
            wait_ms,
            "a source could not be listed again; what it had is served on"
        );
        board.failed_again((why, self.now()));
    }

    /// Text of a source as others may see it.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        printable::string(&mut text);
        self.registry.shared().redactor.string(&mut text);
        text
    }

    /// How every source is.
    pub fn sources(&self) -> Vec<SourceView> {
        let now = self.now();
        let view = |board: &Arc<Board>| {
            let mut view = board.view(now);
            let said = view.doing.iter_mut().chain(&mut view.fault).chain(&mut view.warnings);
            said.for_each(|text| *text = self.clean(text));
            view
        };
        self.shown.load().iter().map(view).collect()
    }

    /// Sources without which the service is not ready: they were neither listed nor failed since the start.
    pub fn awaited(&self) -> Vec<SourceView> {
        let boards = self.shown.load();
        boards.iter().filter(|board| board.is_awaited()).map(|board| board.view(self.now())).collect()
    }

    /// Returns when every source was listed once or failed once.
    pub async fn sources_listed(&self) {
        let mut told = self.told.subscribe();
        loop {
            told.borrow_and_update();
            if self.shown.load().iter().all(|board| board.is_settled()) || told.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts a source anew beside what is served: when it is listed it takes its place, as after a change. `None` if
    /// there is no such source.
    pub async fn restart(self: &Arc<Self>, name: &str) -> Option<Restarting> {
        let mut state = self.state.lock().await;
        let kept = state.sources.get(name)?;
        let settings = kept.declared.settings.clone();
        kept.files = blocking::on_a_thread(move || Seen::of(settings.files())).await?;
        let number = self.begin(kept, false);
        Some(Restarting { board: kept.board.clone(), number })
    }

    /// How a source is when that start has ended, well or not. `None` after `patience`.
    pub async fn restarted(&self, one: &Restarting, patience: Duration) -> Option<SourceView> {
        let mut told = self.told.subscribe();
        let ended = async {
            loop {
                told.borrow_and_update();
                if one.board.has_ended(one.number) || told.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, ended).await.ok().map(|()| self.view(one))
    }

    /// How the source is now.
    pub fn view(&self, one: &Restarting) -> SourceView {
        let found = self.sources().into_iter().find(|view| view.name == one.board.name);
        found.unwrap_or_else(|| one.board.view(self.now()))
    }

    /// Starts those sources anew whose files say something else.
    pub(in crate::live) async fn restart_changed(self: &Arc<Self>, now: Vec<(Arc<str>, Seen)>) {
        let mut state = self.state.lock().await;
        for (name, files) in now {
            if let Some(kept) = state.sources.get(&name).filter(|kept| !kept.files.says_the_same(&files)) {
                tracing::info!(source = &*name, "files of a source have changed: it is started anew");
                kept.files = files;
                self.begin(kept, false);
            }
        }
    }

    /// Lets go of every source and every tool: what runs them ends with the last call that is under way.
    pub async fn stop_sources(&self) {
        let mut sources = std::mem::take(&mut self.state.lock().await.sources);
        self.registry.clear();
        self.shown.store(Arc::default());
        for watching in sources.0.iter_mut().filter_map(|kept| kept.watching.take()) {
            watching.end().await;
        }
        drop(sources);
    }
}
