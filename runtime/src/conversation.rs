//! A conversation: one context, and what was said in it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skillgraft_engine::{Message, Mode, SamplingOptions, Session};
use skillgraft_kv::{Ledger, TokenId};
use skillgraft_skills::{Choice, SkillSession};

use crate::edit::Held;
use crate::report::{ActivationReport, PrefixReport};
use crate::runtime::Runtime;

/// One context of a runtime.
#[derive(Debug)]
pub struct Conversation {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) session: Session,
    /// What was said, for the chat template.
    pub(crate) history: Vec<Message>,
    /// Tokens of the context that have no KV yet: the end of the last answer.
    pub(crate) pending: Vec<TokenId>,
    /// The skills that the model knows of, and what of them is in the context.
    pub(crate) skills: SkillSession,
    /// The skills in the context, where they are.
    pub(crate) held: Vec<Held>,
    pub(crate) prefix: PrefixReport,
}

impl Conversation {
    /// The token ids of the static prefix.
    pub(crate) fn prefix_tokens(&self) -> &[TokenId] {
        &self.session.tokens()[..self.prefix.tokens]
    }
}

/// Which promise a turn makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnMode {
    /// The runtime chooses: a graft for skills that are placed before the message,
    /// a repair for those behind it.
    #[default]
    Auto,
    /// Everything after the prefix is prefilled.
    Exact,
    /// Skills are grafted.
    Graft,
    /// Skills are grafted, and the lines that the prompt is about computed anew.
    Repair,
    /// The answer begins on grafted skills and ends as under [`Exact`](Self::Exact):
    /// the same tokens are prefilled beside it, and what was decoded is checked.
    Verified,
}

impl TurnMode {
    /// How activations at a place are done under this mode.
    pub fn activation_mode(self, placement: Placement) -> Mode {
        match (self, placement) {
            (TurnMode::Exact, _) => Mode::Exact,
            (TurnMode::Graft, _) | (TurnMode::Auto | TurnMode::Verified, Placement::Before) => {
                Mode::Graft
            }
            (TurnMode::Repair, _) | (TurnMode::Auto | TurnMode::Verified, Placement::Tail) => {
                Mode::Repair
            }
        }
    }

    /// The name used in reports; that of the activations for [`Auto`](Self::Auto).
    pub fn name(self, placement: Placement) -> &'static str {
        match (self, self.activation_mode(placement)) {
            (TurnMode::Verified, _) => "verified",
            (_, Mode::Exact) => "exact",
            (_, Mode::Graft) => "graft",
            (_, Mode::Repair) => "repair",
        }
    }
}

/// Where the skills of a turn are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Before the user's words: these have read the skill, and the skill needs to
    /// have read nothing of them.
    #[default]
    Before,
    /// Behind the user's words, as in the middle of a turn.
    Tail,
}

impl Placement {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Before => "before",
            Placement::Tail => "tail",
        }
    }
}

/// What a caller may choose about a turn.
#[derive(Debug, Clone)]
pub struct TurnOptions {
    /// Which promise it makes.
    pub mode: TurnMode,
    /// Where skills are placed.
    pub placement: Placement,
    /// Skills to use, by name, and files as `skill/path`; none leaves the choice
    /// to the runtime.
    pub use_skills: Vec<String>,
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Ends the turn from another thread.
    pub stop: StopFlag,
}

impl Default for TurnOptions {
    fn default() -> Self {
        TurnOptions {
            mode: TurnMode::Auto,
            placement: Placement::Before,
            use_skills: Vec::new(),
            max_tokens: 256,
            sampling: SamplingOptions::default(),
            stop: StopFlag::default(),
        }
    }
}

/// Asks a turn to end, from any thread.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes it back, for the next turn.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for code that knows only the standard library.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub(crate) fn check(&self) -> ControlFlow<()> {
        if self.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// What happens during a turn, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnEvent<'a> {
    /// Skills have changed since the last turn: what the model is told of it.
    SkillsChanged(&'a str),
    /// Skills were chosen, or none.
    Chosen(&'a Choice),
    /// A skill is about to be activated.
    Activating {
        /// Its identifier.
        name: &'a str,
        /// Its length.
        n_tokens: usize,
    },
    /// A skill was activated.
    Activated(&'a ActivationReport),
    /// Text of the answer.
    Text(&'a str),
    /// Of the answer's text so far only the beginning holds: under
    /// [`TurnMode::Verified`] the rest was not what a full prefill gives.
    Corrected {
        /// Bytes that stay.
        keep_bytes: usize,
    },
}

impl Conversation {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        session: Session,
        skills: SkillSession,
        system: Message,
        prefix: PrefixReport,
    ) -> Self {
        Conversation {
            runtime,
            session,
            history: vec![system],
            pending: Vec::new(),
            skills,
            held: Vec::new(),
            prefix,
        }
    }

    /// A second conversation with the same past. Costs a copy of the segment
    /// table; K and V are shared.
    #[must_use]
    pub fn branch(&self) -> Self {
        Conversation {
            runtime: Arc::clone(&self.runtime),
            session: self.session.branch(),
            history: self.history.clone(),
            pending: self.pending.clone(),
            skills: self.skills.clone(),
            held: self.held.clone(),
            prefix: self.prefix.clone(),
        }
    }

    /// The static prefix.
    pub fn prefix(&self) -> &PrefixReport {
        &self.prefix
    }

    /// What is in the context.
    pub fn ledger(&self) -> &Ledger {
        self.session.ledger()
    }

    /// The context.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The skills that the model knows of, and what of them is in the context.
    pub fn skills(&self) -> &SkillSession {
        &self.skills
    }

    /// What was said so far.
    pub fn history(&self) -> &[Message] {
        &self.history
    }
}
