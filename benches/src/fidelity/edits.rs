//! Edits: a skill changes after it came into a context, and what is done about it.
//!
//! Two situations: nothing was generated since the skill came in, and its old value
//! was given as an answer since. In both the same question is asked after the edit.
//!
//! **Invariant:** every method answers behind the same words; the reference is a
//! full prefill of the context with the new text in the skill's place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use skillgraft::Prompts;
use skillgraft_engine::{BlockSource, Hunk, Interrupt, Session, arg_max, compile_from, hunks};
use skillgraft_kv::{AnchorKind, TokenId, VerifiedBlock};

use super::case::force;
use super::evalset::{EvalCase, EvalSet};
use super::layout::{CaseTokens, Layout, Setting};
use super::pairs::{pair_files, pairs};
use super::spread;
use crate::divergence::divergence;
use crate::error::Error;
use crate::machine;
use crate::report::{EditMethodReport, EditsReport};
use crate::stats::bootstrap;
use crate::subject::Subject;
use crate::watch::Watch;

/// What is done about an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// The reference: everything from the skill on is prefilled with the new text.
    Reprefill,
    /// Nothing.
    Nothing,
    /// The new line is told at the tail.
    Line,
    /// The text is patched in its place.
    Patch,
    /// Both.
    PatchAndLine,
}

impl Method {
    const ALL: [Method; 5] =
        [Method::Reprefill, Method::Nothing, Method::Line, Method::Patch, Method::PatchAndLine];

    const fn name(self) -> &'static str {
        match self {
            Method::Reprefill => "reprefill",
            Method::Nothing => "nothing",
            Method::Line => "line",
            Method::Patch => "patch",
            Method::PatchAndLine => "patch-and-line",
        }
    }

    const fn patches(self) -> bool {
        matches!(self, Method::Patch | Method::PatchAndLine)
    }

    const fn tells(self) -> bool {
        matches!(self, Method::Line | Method::PatchAndLine)
    }
}

/// One answer after an edit.
struct Outcome {
    gives_new: bool,
    gives_old: bool,
    kl: Vec<f64>,
    n_computed: usize,
    n_block: usize,
}

/// An edited case as token ids.
struct Edited {
    old: CaseTokens,
    new: CaseTokens,
    hunks: Vec<Hunk>,
    /// The erratum.
    told: Vec<TokenId>,
    /// Closes the answer with the old value and opens the next message.
    between: Vec<TokenId>,
}

/// Measures what edits do to answers, on the cases of a set that have one. A case
/// is left out where the old value stands in the skill more than once. Then the real
/// edits of `folder`, pairs of `NAME.old.md` and `NAME.new.md`.
///
/// # Errors
/// When a case does not fit into the context, blocks of the model cannot be
/// grafted, there is no case with an edit, or the watch ends it.
pub fn edits(
    subject: &Subject,
    set: &EvalSet,
    limit: Option<usize>,
    folder: Option<&Path>,
    command: &str,
    watch: &mut Watch<'_>,
) -> Result<EditsReport, Error> {
    let model = &subject.model;
    if let Some(reason) = model.not_graftable() {
        return Err(Error::NotGrafted { reason: reason.to_owned() });
    }
    // What cannot be read should not cost minutes first.
    let files = folder.map(pair_files).transpose()?;
    let layout = Layout::new(model.tokenizer(), set);
    let cases: Vec<(&EvalCase, EditedCase)> =
        set.cases.iter().filter_map(|case| Some((case, edited(set, case)?))).collect();
    if cases.is_empty() {
        return Err(Error::NoEdits { set: set.name.clone() });
    }
    watch.step("prefilling the static prefix")?;
    let mut prefix = Session::new(Arc::clone(model));
    prefix.prefill(&layout.prefix()?, "prefix", &watch.interrupt())?;

    let mut outcomes = BTreeMap::<(&str, &str), Vec<Outcome>>::new();
    let chosen = spread(cases.len(), limit.unwrap_or(cases.len()));
    for (done, &idx) in chosen.iter().enumerate() {
        let (case, edited) = &cases[idx];
        watch.step(&format!("edit {} of {}: {}", done + 1, chosen.len(), case.id))?;
        let tokens = tokens(&prefix, &layout, case, edited)?;
        for (situation, has_answered) in [("unanswered", false), ("answered", true)] {
            let mut reference = None;
            for method in Method::ALL {
                let interrupt = watch.interrupt();
                let (session, first, n_computed) =
                    carry_out(&prefix, &tokens, method, has_answered, &interrupt)?;
                let outcome = judge(&session, &first, &tokens, &mut reference, n_computed)?;
                outcomes.entry((situation, method.name())).or_default().push(outcome);
            }
        }
    }
    let mut situations = BTreeMap::<_, BTreeMap<_, _>>::new();
    for ((situation, method), outcomes) in &outcomes {
        situations.entry(*situation).or_default().insert(*method, summarise(outcomes));
    }
    let pairs = files.map(|files| pairs(subject, set, &files, watch)).transpose()?;
    Ok(EditsReport {
        run: machine::describe_run(subject, command),
        machine: machine::describe(model),
        evalset: set.name.clone(),
        situations,
        pairs,
    })
}

/// A case after its edit: the skill's text and the answer.
struct EditedCase {
    body: String,
    answer: String,
}

fn edited(set: &EvalSet, case: &EvalCase) -> Option<EditedCase> {
    let (old, new) = (case.edit_old.as_deref()?, case.edit_new.as_deref()?);
    let body = &set.skill_of(case).body;
    let is_clear = body.matches(old).count() == 1 && case.answer.contains(old);
    is_clear.then(|| EditedCase {
        body: body.replacen(old, new, 1),
        answer: case.answer.replacen(old, new, 1),
    })
}

fn tokens(
    prefix: &Session,
    layout: &Layout<'_>,
    case: &EvalCase,
    edited: &EditedCase,
) -> Result<Edited, Error> {
    let model = prefix.model();
    let old = layout.case(case, &Setting::default())?;
    let after = EvalCase { answer: edited.answer.clone(), ..case.clone() };
    let skill = layout.skill(&case.skills[0], edited.body.clone())?;
    let new = CaseTokens { skills: vec![skill], ..layout.case(&after, &Setting::default())? };
    let hunks = hunks(model.tokenizer(), &old.target().block, &new.target().block)?;
    let lines = Prompts::new(model).changed_lines(&edited.body, &hunks)?;
    let told = layout.words(&Prompts::erratum(&case.skills[0], &lines))?;
    let between = layout.markup("<|im_end|>\n<|im_start|>user\n")?;
    Ok(Edited { old, new, hunks, told, between })
}

/// A context up to the answer after the edit, the logits of the answer's first
/// token, and how many tokens the edit cost.
fn carry_out(
    prefix: &Session,
    case: &Edited,
    method: Method,
    has_answered: bool,
    interrupt: Interrupt<'_>,
) -> Result<(Session, Vec<f32>, usize), Error> {
    let Edited { old, new, hunks, told, between } = case;
    let mut session = prefix.branch();
    session.prefill(&old.turn, "turn", interrupt)?;
    let (old_skill, new_skill) = (old.target(), new.target());
    session.prefill(&[&old.opening[..], &old_skill.header].concat(), "header", interrupt)?;
    let start = session.end();
    let mut said = old_skill.closing.clone();
    if has_answered {
        said.extend([&old.question[..], &old.answer, between].concat());
    }
    let mut n_computed = 0;
    if method == Method::Reprefill {
        session.prefill(&new_skill.block, "skill", interrupt)?;
        session.prefill(&said, "said", interrupt)?;
        n_computed = new_skill.block.len() + said.len();
    } else {
        let block = behind(&session, &old_skill.block, interrupt)?;
        session.graft(block, "skill")?;
        session.prefill(&said, "said", interrupt)?;
    }
    if method.patches() {
        session.patch(start, hunks, &new_skill.block, interrupt)?;
        n_computed += hunks.iter().map(|hunk| hunk.new.len()).sum::<usize>();
    }
    if method.tells() {
        session.prefill(told, "told", interrupt)?;
        n_computed += told.len();
    }
    let logits = session.prefill(&old.question, "question", interrupt)?;
    Ok((session, logits.expect("a question has tokens"), n_computed))
}

/// The old text, compiled behind what the context has: a first skill's usual block.
pub(super) fn behind(
    session: &Session,
    tokens: &[TokenId],
    interrupt: Interrupt<'_>,
) -> Result<VerifiedBlock, Error> {
    let source = BlockSource {
        label: "skill",
        anchor: AnchorKind::Prefix,
        anchor_tokens: session.tokens(),
        tokens,
        salt: [0; 16],
    };
    Ok(VerifiedBlock::from_compiled(compile_from(session, &source, interrupt)?))
}

fn judge(
    session: &Session,
    first: &[f32],
    case: &Edited,
    reference: &mut Option<Vec<Vec<f32>>>,
    n_computed: usize,
) -> Result<Outcome, Error> {
    let new = force(session, first, &case.new.answer)?;
    let old = force(session, first, &case.old.answer)?;
    let gives = |logits: &[Vec<f32>], answer: &[TokenId]| {
        logits.iter().zip(answer).all(|(logits, &token)| arg_max(logits) == token)
    };
    let (gives_new, gives_old) = (gives(&new, &case.new.answer), gives(&old, &case.old.answer));
    let reference = reference.get_or_insert_with(|| new.clone());
    let kl = reference.iter().zip(&new).map(|(full, this)| divergence(full, this).kl).collect();
    Ok(Outcome { gives_new, gives_old, kl, n_computed, n_block: case.new.target().block.len() })
}

fn summarise(outcomes: &[Outcome]) -> EditMethodReport {
    let share = |of: &dyn Fn(&Outcome) -> bool, outcomes: &[&Outcome]| {
        outcomes.iter().filter(|outcome| of(outcome)).count() as f64 / outcomes.len() as f64
    };
    let all: Vec<&Outcome> = outcomes.iter().collect();
    let computed = |outcome: &Outcome| outcome.n_computed as f64 / outcome.n_block as f64;
    let kl: Vec<f64> = outcomes.iter().flat_map(|outcome| outcome.kl.iter().copied()).collect();
    let new_right = |outcome: &Outcome| outcome.gives_new;
    EditMethodReport {
        cases: outcomes.len(),
        new_right: share(&new_right, &all),
        new_right_interval: bootstrap(&all, |drawn| {
            drawn.iter().filter(|outcome| outcome.gives_new).count() as f64 / drawn.len() as f64
        }),
        old_given: share(&|outcome| outcome.gives_old, &all),
        kl_mean: kl.iter().sum::<f64>() / kl.len() as f64,
        recomputed_share: outcomes.iter().map(computed).sum::<f64>() / outcomes.len() as f64,
    }
}
