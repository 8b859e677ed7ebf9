//! The report of edits.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Machine, Run};
use crate::stats::Interval;

/// What edits of skills do to answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EditsReport {
    /// What was run.
    pub run: Run,
    /// What it was run on.
    pub machine: Machine,
    /// The evaluation set: its folder's name, or `built-in`.
    pub evalset: String,
    /// `unanswered`: nothing was generated between the skill and the edit;
    /// `answered`: the old value was given as an answer. In each, every method.
    pub situations: BTreeMap<&'static str, BTreeMap<&'static str, EditMethodReport>>,
    /// Real edits, when they were asked for.
    pub pairs: Option<PairsReport>,
}

/// Real edits: two versions of a skill's file each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PairsReport {
    /// Pairs.
    pub pairs: usize,
    /// Those whose body is equal, or of which one is no skill.
    pub body_is_equal: usize,
    /// Those that are edited in their place.
    pub edited_in_place: usize,
    /// Those with so many changes that the skill is brought in again.
    pub brought_in_again: usize,
    /// Edited in place, and too long to be compared here.
    pub too_long: usize,
    /// Tokens that an edit in place computes, against those of the text, mean.
    pub recomputed_share: f64,
    /// The old text left as it was, against a full prefill of the new one.
    pub nothing: PairMethod,
    /// The text edited in its place, against the same.
    pub patch: PairMethod,
}

/// One way of treating real edits, along full prefill's own answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PairMethod {
    /// Positions compared.
    pub positions: usize,
    /// Mean KL, in nats.
    pub kl_mean: f64,
    /// Share of positions with the same most likely token.
    pub top1: f64,
}

impl PairMethod {
    /// Sums become means.
    pub(crate) fn mean(self) -> Self {
        let n = self.positions.max(1) as f64;
        PairMethod { kl_mean: self.kl_mean / n, top1: self.top1 / n, ..self }
    }
}

/// What is done about an edit, on all cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EditMethodReport {
    /// Cases.
    pub cases: usize,
    /// Share of cases in which the answer has the new value.
    pub new_right: f64,
    /// Its 95 % interval, a bootstrap over cases.
    pub new_right_interval: Interval,
    /// Share of cases in which the answer still has the old value.
    pub old_given: f64,
    /// Mean KL of a full prefill with the new text to this method, along the answer
    /// with the new value, in nats.
    pub kl_mean: f64,
    /// Tokens that the edit costs, against those of the skill, mean.
    pub recomputed_share: f64,
}
