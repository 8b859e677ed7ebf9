//! The report of a conversation.

use std::collections::BTreeMap;

use serde::Serialize;

/// A conversation: a skill comes in with every second turn, and one is edited on the
/// way. Everybody keeps what was said before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReport {
    /// Length of each skill.
    pub skill_tokens: usize,
    /// Conversations timed.
    pub n: usize,
    /// Its turns.
    pub turns: Vec<SessionTurn>,
    /// Sums over the turns, by name.
    pub total: BTreeMap<String, SessionTiming>,
}

/// A turn of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionTurn {
    /// Which, counted from 1.
    pub turn: usize,
    /// `skill`: one comes in; `edit`: one that is there has changed; or `message`.
    pub what: &'static str,
    /// `our graft`, `our exact`, and peers with a cache of prefixes as
    /// `NAME/prefix`.
    pub timings: BTreeMap<String, SessionTiming>,
}

/// What a turn costs somebody.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SessionTiming {
    /// Median time to the first token.
    pub ttft_ms: f64,
    /// Tokens prefilled.
    pub prefilled: usize,
}
