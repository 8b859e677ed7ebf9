//! What a turn did, in the names of the commands' JSON.

use serde::Serialize;
use skillgraft_engine::Verified;
use skillgraft_skills::{CatalogStep, Rendered};

/// What one turn did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnReport {
    /// The answer's text.
    pub answer: String,
    /// Id or file of the model.
    pub model: String,
    /// `exact`, `graft`, `repair` or `verified`.
    pub mode: &'static str,
    /// Why these skills, or why none.
    pub choice: ChoiceReport,
    /// What was activated, in order.
    pub activations: Vec<ActivationReport>,
    /// What was asked for and is in the context already.
    pub already: Vec<AlreadyReport>,
    /// Skills in the context that have changed and were edited in their place.
    pub patched: Vec<PatchReport>,
    /// What the model was told of skills that have changed since the last turn;
    /// `null` when none has.
    pub update: Option<String>,
    /// The static prefix of the conversation.
    pub prefix: PrefixReport,
    /// Token counts.
    pub tokens: TokenCounts,
    /// From the request to the first token, in milliseconds: choosing,
    /// activating (compiling too, where there was no block) and prefilling.
    pub ttft_ms: f64,
    /// Mean time per output token after the first, in milliseconds.
    pub tpot_ms: f64,
    /// What the turn costs without grafting.
    pub full_prefill: FullPrefill,
    /// Why decoding ended: `end_of_turn`, `max_tokens`, `context_full` or
    /// `interrupted`.
    pub stop: &'static str,
    /// What checking the answer found; `null` in other modes than `verified`.
    pub verified: Option<VerifiedReport>,
}

/// What checking an answer found that began on grafted skills.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifiedReport {
    /// Tokens prefilled exactly beside the answer; 0 when all were exact.
    pub prefilled_tokens: usize,
    /// Tokens of the answer that were checked; those after them are exact.
    pub checked_tokens: usize,
    /// The first token that differed, counted from 0; `null` when none did.
    pub first_difference: Option<usize>,
    /// The exact prefill, beside the decoding.
    pub prefill_ms: f64,
    /// What the end of the answer waited for it.
    pub wait_ms: f64,
    /// Whether the answer was stopped before it could be checked.
    pub unchecked: bool,
}

impl VerifiedReport {
    pub(crate) fn of(verified: Verified) -> Self {
        VerifiedReport {
            prefilled_tokens: verified.prefilled_tokens,
            checked_tokens: verified.checked_tokens,
            first_difference: verified.first_difference,
            prefill_ms: verified.prefill_ms,
            wait_ms: verified.wait_ms,
            unchecked: verified.is_unchecked,
        }
    }
}

/// Why skills were chosen, or none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChoiceReport {
    /// `forced`, `search` or `none`.
    pub how: &'static str,
    /// In words.
    pub reason: String,
}

/// One activation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActivationReport {
    /// The skill, or `skill/path` of a file.
    pub name: String,
    /// Why it was chosen.
    pub reason: String,
    /// What was odd about it: `showing lines 1-200 of 5000`; `null` for nothing.
    pub note: Option<String>,
    /// Where it was placed: `before` the user's words, or at the `tail`, behind
    /// them.
    pub placement: &'static str,
    /// Where the block came from: `disk`, `memory`, `compiled`, or `none` when
    /// the text was prefilled.
    pub block: &'static str,
    /// What the block was compiled behind: `neutral`, `prefix` or `none`.
    pub anchor: &'static str,
    /// Whether its KV is what a full prefill computes here, to the bit.
    pub exact: bool,
    /// Tokens grafted.
    pub grafted_tokens: usize,
    /// Tokens of the block recomputed in place.
    pub repaired_tokens: usize,
    /// Tokens of this skill that were prefilled.
    pub prefilled_tokens: usize,
    /// The graft itself.
    pub graft_ms: f64,
    /// Computing tokens of the block anew.
    pub repair_ms: f64,
    /// Finding, opening and checking the block.
    pub lookup_ms: f64,
    /// Compiling and writing the block; 0 when it was found.
    pub compile_ms: f64,
    /// What prefilling the grafted tokens took when the block was compiled.
    pub saved_ms: f64,
    /// Why the mode is not the one that was asked for.
    pub fallback: Option<String>,
    /// Why no block was found: `absent`, `damaged`, `other_version`, `foreign`
    /// or `unreadable`; `null` when one was.
    pub miss: Option<&'static str>,
    /// Why the compiled block will not be found next time; `null` when it will.
    pub not_kept: Option<String>,
}

/// A skill that was edited in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchReport {
    /// The skill.
    pub name: String,
    /// Places that differed.
    pub hunks: usize,
    /// Tokens of the new text.
    pub tokens: usize,
    /// Of these, computed anew.
    pub recomputed_tokens: usize,
    /// Whether the new lines were told at the tail too, since something was said on
    /// the old ones.
    pub told: bool,
    /// What it took.
    pub ms: f64,
}

/// The static prefix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrefixReport {
    /// Its length.
    pub tokens: usize,
    /// Where its KV came from: `disk`, `memory` or `computed`.
    pub block: &'static str,
    /// What that took, outside `ttft_ms`.
    pub ms: f64,
    /// The catalog in it.
    pub catalog: CatalogReport,
}

/// The catalog as the model was shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CatalogReport {
    /// Its length.
    pub tokens: usize,
    /// Skills that it names.
    pub listed: usize,
    /// Skills that it does not: search finds them.
    pub left_out: usize,
    /// What had to be left out to meet its budget; `null` for nothing.
    pub cut: Option<String>,
}

impl CatalogReport {
    pub(crate) fn of(rendered: &Rendered) -> Self {
        CatalogReport {
            tokens: rendered.n_tokens,
            listed: rendered.n_listed,
            left_out: rendered.n_left_out,
            cut: (rendered.step != CatalogStep::Whole).then(|| rendered.to_string()),
        }
    }
}

/// Something that was asked for and is in the context already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlreadyReport {
    /// The skill, or `skill/path` of a file.
    pub name: String,
    /// Position of its first token.
    pub position: u64,
}

/// Token counts of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TokenCounts {
    /// In the static prefix.
    pub prefix: usize,
    /// Grafted in this turn.
    pub grafted: usize,
    /// Prefilled in this turn, in this context.
    pub prefilled: usize,
    /// Generated.
    pub generated: usize,
}

/// What the turn costs when everything after the prefix is prefilled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FullPrefill {
    /// Time to the first token.
    pub ttft_ms: f64,
    /// Whether it was worked out rather than measured now: this turn's own time,
    /// with the graft replaced by what prefilling the block's tokens took when
    /// the block was compiled.
    pub estimated: bool,
}
