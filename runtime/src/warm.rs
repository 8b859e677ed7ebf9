//! Compiling blocks ahead of need, while nothing else is to be done.
//!
//! **Invariant:** a turn has the machine to itself. Work in the background waits
//! at the next chunk while a turn runs, and goes on afterwards.
//!
//! **Refuses:** to queue without end: a runtime whose queue nobody works off
//! forgets the oldest wishes.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use skillgraft_engine::{BlockSource, Interrupt, Session, compile_edited, compile_from, hunks};
use skillgraft_kv::{AnchorKind, BlockKey, Kept, Lookup, TokenId};
use skillgraft_skills::{Catalog, CatalogChange, ChangeKind, SkillIdx};

use crate::conversation::StopFlag;
use crate::error::Error;
use crate::prompt::Prompts;
use crate::runtime::Runtime;

/// Blocks that wait to be compiled.
const JOBS_MAX: usize = 64;

/// What became of a block that was wanted ahead of need.
#[derive(Debug, Clone, PartialEq)]
pub struct Warmed {
    /// A skill, or `skill/path` of a file.
    pub name: String,
    /// What it was compiled behind.
    pub anchor: AnchorKind,
    /// Length of the block.
    pub n_tokens: usize,
    /// What compiling it took, in milliseconds, waiting included; 0 when it was
    /// there.
    pub ms: f64,
    /// Whether it was there already.
    pub was_there: bool,
    /// When there was one that would do, made from that of the text's last version,
    /// in milliseconds; `None` when none was made.
    pub edited_ms: Option<f64>,
    /// Why later processes will not find it; `None` when they will.
    pub not_kept: Option<String>,
}

/// A block to be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) anchor: AnchorKind,
    pub(crate) anchor_tokens: Vec<TokenId>,
    pub(crate) tokens: Vec<TokenId>,
    /// The static prefix that the anchor begins with; empty for none.
    pub(crate) prefix: Vec<TokenId>,
    /// The block of the text's last version, from which one can be made at once that
    /// will do until this is compiled.
    pub(crate) earlier: Option<BlockKey>,
}

impl Job {
    fn source(&self, salt: [u8; 16]) -> BlockSource<'_> {
        BlockSource {
            label: &self.name,
            anchor: self.anchor,
            anchor_tokens: &self.anchor_tokens,
            tokens: &self.tokens,
            salt,
        }
    }
}

/// What is to be done in the background, and whether there is time for it.
#[derive(Debug, Default)]
pub(crate) struct Background {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    n_turns: usize,
    jobs: VecDeque<Job>,
    /// Skills and files that turns have activated.
    used: HashSet<String>,
}

/// A turn runs while this lives.
pub(crate) struct Busy<'a>(&'a Background);

impl Background {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.has_changed.wait_while(self.state(), condition);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_turn(&self) -> Busy<'_> {
        self.state().n_turns += 1;
        Busy(self)
    }

    /// A turn has activated a skill or a file.
    pub(crate) fn note_use(&self, name: &str) {
        self.state().used.insert(name.to_owned());
    }

    fn is_used(&self, name: &str) -> bool {
        self.state().used.contains(name)
    }

    /// Wishes for a block. An earlier wish for the same text in an older version
    /// is forgotten.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.state();
        state.jobs.retain(|old| (&old.name, old.anchor) != (&job.name, job.anchor));
        if state.jobs.len() == JOBS_MAX {
            state.jobs.pop_front();
        }
        state.jobs.push_back(job);
        self.has_changed.notify_all();
    }

    fn pop(&self) -> Option<Job> {
        self.state().jobs.pop_front()
    }

    /// The next job, waited for until `stop` is set.
    pub(crate) fn wait_for_job(&self, stop: &StopFlag) -> Option<Job> {
        let mut state = self.wait_while(|state| state.jobs.is_empty() && !stop.is_set());
        if stop.is_set() { None } else { state.jobs.pop_front() }
    }

    /// Waits until no turn runs or `stop` is set; whether to go on.
    fn wait_for_idle(&self, stop: &StopFlag) -> ControlFlow<()> {
        drop(self.wait_while(|state| state.n_turns > 0 && !stop.is_set()));
        stop.check()
    }

    /// Makes those who wait look at their stop flag.
    pub(crate) fn wake(&self) {
        // The lock orders this after a check of the flag that has begun.
        let _state = self.state();
        self.has_changed.notify_all();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state().n_turns -= 1;
        self.0.has_changed.notify_all();
    }
}

impl Runtime {
    /// Compiles a skill's block, as it can be used in any context, unless it is
    /// there. Waits while a turn runs.
    ///
    /// # Errors
    /// When the skill's folder cannot be read, its text does not fit into the
    /// context, or `stop` is set.
    ///
    /// # Panics
    /// When the index is of another, larger catalog.
    pub fn warm(
        &self,
        catalog: &Catalog,
        skill: SkillIdx,
        stop: &StopFlag,
    ) -> Result<Warmed, Error> {
        self.work(&self.neutral_job(catalog, skill)?, stop)
    }

    /// Compiles what turns have found worth it: the block of a skill that was
    /// used, behind the other kind of anchor. Returns when nothing is left to do;
    /// `tell` hears of each block.
    ///
    /// # Errors
    /// When a block cannot be compiled or `stop` is set; what is left waits for
    /// the next call.
    pub fn work_off(&self, stop: &StopFlag, tell: &mut dyn FnMut(Warmed)) -> Result<(), Error> {
        while let Some(job) = self.background().pop() {
            match self.work(&job, stop) {
                Ok(warmed) => tell(warmed),
                Err(error) => {
                    if matches!(error, Error::Interrupted) {
                        self.background().push(job);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Compiles one block, unless it is there.
    pub(crate) fn work(&self, job: &Job, stop: &StopFlag) -> Result<Warmed, Error> {
        let started = Instant::now();
        let source = job.source(self.salt());
        let mut warmed = Warmed {
            name: job.name.clone(),
            anchor: job.anchor,
            n_tokens: job.tokens.len(),
            ms: 0.0,
            was_there: true,
            edited_ms: None,
            not_kept: None,
        };
        if let Lookup::Hit(..) = self.store().get(&source.key(self.model())) {
            return Ok(warmed);
        }
        let wait = || self.background().wait_for_idle(stop);
        let mut base = Session::new(std::sync::Arc::clone(self.model()));
        if !job.prefix.is_empty() {
            self.establish_prefix(&mut base, &job.prefix, &wait)?;
        }
        if self.edit_block(job, &base, &source, &wait)? {
            warmed.edited_ms = Some(started.elapsed().as_secs_f64() * 1e3);
        }
        let stored = self.store().put(compile_from(&base, &source, &wait)?);
        if let Kept::InMemory { reason } = stored.kept {
            warmed.not_kept = Some(reason);
        }
        warmed.was_there = false;
        warmed.ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(warmed)
    }

    /// Makes a block from that of the text's last version, for this process, until
    /// the whole text is compiled. Whether there is one.
    fn edit_block(
        &self,
        job: &Job,
        base: &Session,
        source: &BlockSource<'_>,
        wait: Interrupt<'_>,
    ) -> Result<bool, Error> {
        let Some(key) = &job.earlier else { return Ok(false) };
        let Lookup::Hit(earlier, _) = self.store().get(key) else { return Ok(false) };
        let hunks = hunks(self.model().tokenizer(), &earlier.header().tokens, source.tokens)?;
        if !Prompts::edits_in_place(&hunks, source.tokens.len()) {
            return Ok(false);
        }
        let edited = compile_edited(base, source, &earlier, wait)?;
        let is_made = edited.is_some();
        edited.map(|block| self.store().keep(block));
        Ok(is_made)
    }

    /// The blocks worth compiling after some changes: of skills that had one and
    /// have another body now.
    pub(crate) fn to_warm(
        &self,
        changes: &[CatalogChange],
        before: &Catalog,
        now: &Catalog,
    ) -> Vec<Job> {
        let is_new_body = |change: &&CatalogChange| {
            matches!(change.kind, ChangeKind::Changed { front_matter_only: false })
        };
        let job = |catalog: &Catalog, id: &str| {
            // A block that cannot be named now is not worth anything.
            let skill = catalog.resolve(id).ok()?;
            self.neutral_job(catalog, skill).ok()
        };
        let is_stored = |job: &Job| {
            let key = job.source(self.salt()).key(self.model());
            matches!(self.store().get(&key), Lookup::Hit(..))
        };
        changes
            .iter()
            .filter(is_new_body)
            .filter(|change| {
                self.background().is_used(&change.id)
                    || job(before, &change.id).is_some_and(|old| is_stored(&old))
            })
            .filter_map(|change| {
                let earlier = job(before, &change.id);
                let earlier = earlier.map(|old| old.source(self.salt()).key(self.model()));
                Some(Job { earlier, ..job(now, &change.id)? })
            })
            .collect()
    }

    fn neutral_job(&self, catalog: &Catalog, skill: SkillIdx) -> Result<Job, Error> {
        let prompts = Prompts::new(self.model());
        let activation = catalog.activation(skill)?;
        let text = prompts.skill(&activation)?;
        Ok(Job {
            name: activation.id,
            anchor: AnchorKind::Neutral,
            anchor_tokens: prompts.neutral_anchor(&text.header)?,
            tokens: text.block,
            prefix: Vec::new(),
            earlier: None,
        })
    }
}
