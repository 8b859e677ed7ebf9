//! Compiling blocks ahead of need, while nothing else is to be done.
//!
//! **Invariant:** a turn has the machine to itself. Work in the background waits
//! at the next chunk while a turn runs, and goes on afterwards.

use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use skillgraft_engine::{BlockSource, compile};
use skillgraft_kv::{AnchorKind, Kept, Lookup};
use skillgraft_skills::{Catalog, CatalogChange, ChangeKind, SkillIdx};

use crate::conversation::StopFlag;
use crate::error::Error;
use crate::prompt::Prompts;
use crate::runtime::Runtime;

/// What became of a block that was wanted ahead of need.
#[derive(Debug, Clone, PartialEq)]
pub struct Warmed {
    /// The skill.
    pub name: String,
    /// Length of the block.
    pub n_tokens: usize,
    /// What compiling it took, in milliseconds, waiting included; 0 when it was
    /// there.
    pub ms: f64,
    /// Whether it was there already.
    pub was_there: bool,
    /// Why later processes will not find it; `None` when they will.
    pub not_kept: Option<String>,
}

/// How many turns run.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    n_turns: Mutex<usize>,
    is_idle: Condvar,
}

/// A turn runs while this lives.
pub(crate) struct Busy<'a>(&'a Activity);

impl Activity {
    fn n_turns(&self) -> MutexGuard<'_, usize> {
        // The number is right even when its holder panicked.
        self.n_turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_turn(&self) -> Busy<'_> {
        *self.n_turns() += 1;
        Busy(self)
    }

    /// Waits until no turn runs or `stop` is set; whether to go on.
    fn wait_for_idle(&self, stop: &StopFlag) -> ControlFlow<()> {
        let turns = self.n_turns();
        let is_busy = |turns: &mut usize| *turns > 0 && !stop.is_set();
        drop(self.is_idle.wait_while(turns, is_busy).unwrap_or_else(PoisonError::into_inner));
        stop.check()
    }

    /// Makes those who wait look at their stop flag.
    pub(crate) fn wake(&self) {
        // The lock orders this after a check of the flag that has begun.
        let _turns = self.n_turns();
        self.is_idle.notify_all();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *self.0.n_turns() -= 1;
        self.0.is_idle.notify_all();
    }
}

impl Runtime {
    /// Compiles a skill's block unless it is there. Waits while a turn runs.
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
        let started = Instant::now();
        self.with_source(catalog, skill, |source| {
            let (name, n_tokens) = (source.label.to_owned(), source.tokens.len());
            if let Lookup::Hit(..) = self.store().get(&source.key(self.model())) {
                return Ok(Warmed { name, n_tokens, ms: 0.0, was_there: true, not_kept: None });
            }
            let wait = || self.activity().wait_for_idle(stop);
            let stored = self.store().put(compile(self.model(), source, &wait)?);
            let not_kept = match stored.kept {
                Kept::OnDisk => None,
                Kept::InMemory { reason } => Some(reason),
            };
            let ms = started.elapsed().as_secs_f64() * 1e3;
            Ok(Warmed { name, n_tokens, ms, was_there: false, not_kept })
        })?
    }

    /// The skills whose blocks are worth compiling after some changes: those
    /// that had a block and have another body now.
    pub(crate) fn to_warm(
        &self,
        changes: &[CatalogChange],
        before: &Catalog,
        now: &Catalog,
    ) -> Vec<SkillIdx> {
        let is_new_body = |change: &&CatalogChange| {
            matches!(change.kind, ChangeKind::Changed { front_matter_only: false })
        };
        let had_block = |id: &str| {
            let is_stored = |source: &BlockSource<'_>| {
                matches!(self.store().get(&source.key(self.model())), Lookup::Hit(..))
            };
            let old = before.resolve(id).map_err(Error::from);
            // A block that cannot be named now is not worth anything.
            old.and_then(|skill| self.with_source(before, skill, is_stored)).unwrap_or(false)
        };
        changes
            .iter()
            .filter(is_new_body)
            .filter(|change| had_block(&change.id))
            .filter_map(|change| now.resolve(&change.id).ok())
            .collect()
    }

    /// The block of a skill as a turn would ask for it.
    fn with_source<T>(
        &self,
        catalog: &Catalog,
        skill: SkillIdx,
        then: impl FnOnce(&BlockSource<'_>) -> T,
    ) -> Result<T, Error> {
        let prompts = Prompts::new(self.model());
        let activation = catalog.activation(skill)?;
        let text = prompts.skill(&activation)?;
        let anchor = prompts.neutral_anchor(&text.header)?;
        Ok(then(&BlockSource {
            label: &activation.id,
            anchor: AnchorKind::Neutral,
            anchor_tokens: &anchor,
            tokens: &text.block,
            salt: self.salt(),
        }))
    }
}
