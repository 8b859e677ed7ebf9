//! Fidelity: what grafting does to answers.
//!
//! Each case is run by full prefill and by every other [`Method`] on the same
//! token ids, teacher-forced twice: along the gold answer, and along full prefill's
//! own greedy continuation. The logits are compared position by position.
//!
//! **Invariant:** a method's numbers are against a full prefill of the same run.
//! Full prefill is run a second time, from nothing and in other chunks, and what
//! it differs from itself is the noise floor; nothing is assumed to be 0.

mod case;
mod edits;
mod evalset;
mod generate;
mod layout;
mod method;
mod pairs;
mod summary;

use std::sync::Arc;

use skillgraft_engine::Session;

use crate::error::Error;
use crate::machine;
use crate::report::{CaseRecord, FidelityReport};
use crate::subject::Subject;
use crate::watch::Watch;

use case::Rig;
use layout::Layout;

pub use edits::edits;
pub use evalset::{EvalCase, EvalSet, EvalSkill};
pub use layout::{Order, Setting};
pub use method::{Method, parse_methods};

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FidelityOptions {
    /// What the contexts are like.
    pub setting: Setting,
    /// The methods to compare with full prefill.
    pub methods: Vec<Method>,
    /// The most cases to run, spread evenly over the set.
    pub limit: Option<usize>,
    /// Length of the greedy continuation along which methods are compared.
    pub n_greedy: usize,
    /// Whether the report lists every case.
    pub list_cases: bool,
}

/// A measurement with all its parts.
#[derive(Debug)]
pub struct FidelityRun<'a> {
    /// The model.
    pub subject: &'a Subject,
    /// The cases.
    pub set: &'a EvalSet,
    /// What is measured.
    pub options: &'a FidelityOptions,
    /// What the report says was run.
    pub command: &'a str,
}

/// Measures answers.
///
/// # Errors
/// When a case does not fit into the context, blocks of the model cannot be
/// grafted, or the watch ends it.
///
/// # Panics
/// When there is no case or no position to compare.
pub fn fidelity(run: &FidelityRun<'_>, watch: &mut Watch<'_>) -> Result<FidelityReport, Error> {
    let FidelityRun { subject, set, options, command } = *run;
    assert!(options.limit != Some(0) && options.n_greedy > 0, "nothing to compare");
    let model = &subject.model;
    if let Some(reason) = model.not_graftable() {
        return Err(Error::NotGrafted { reason: reason.to_owned() });
    }
    let layout = Layout::new(model.tokenizer(), set);
    watch.step("prefilling the static prefix")?;
    let mut prefix = Session::new(Arc::clone(model));
    prefix.prefill(&layout.prefix()?, "prefix", &watch.interrupt())?;

    let mut rig = Rig::new(prefix, options);
    let chosen = spread(set.cases.len(), options.limit.unwrap_or(set.cases.len()));
    let mut records: Vec<CaseRecord> = Vec::new();
    for (done, &idx) in chosen.iter().enumerate() {
        let case = &set.cases[idx];
        watch.step(&format!("case {} of {}: {}", done + 1, chosen.len(), case.id))?;
        records.push(rig.run(case, &layout.case(case, &options.setting)?, watch)?);
    }
    Ok(FidelityReport {
        run: machine::describe_run(subject, command),
        machine: machine::describe(model),
        evalset: set.name.clone(),
        setting: options.setting,
        noise_floor: summary::noise_floor(&records),
        modes: summary::methods(&records, &options.methods),
        cases: options.list_cases.then_some(records),
    })
}

/// Indices of `limit` of `n` things, evenly spread.
fn spread(n: usize, limit: usize) -> Vec<usize> {
    let limit = limit.min(n);
    (0..limit).map(|i| i * n / limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_spread_over_the_set() {
        assert_eq!(spread(7, 7), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(spread(7, 100), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(spread(60, 4), [0, 15, 30, 45]);
        assert_eq!(spread(7, 3), [0, 2, 4]);
        assert!(spread(7, 0).is_empty());
    }
}
