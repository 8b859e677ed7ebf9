//! One case: full prefill, then every method beside it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use skillgraft::Prompts;
use skillgraft_engine::{BlockSource, Interrupt, Session, arg_max, compile_from};
use skillgraft_kv::{BlockKey, TokenId, TokenSpan, VerifiedBlock};

use super::evalset::EvalCase;
use super::layout::{CaseTokens, SkillTokens};
use super::method::Method;
use super::{FidelityOptions, summary};
use crate::divergence::{Divergence, divergence};
use crate::error::Error;
use crate::report::{CaseMethod, CaseRecord};
use crate::watch::Watch;

/// Runs cases behind one prefix.
pub(super) struct Rig<'a> {
    /// A context that holds the static prefix; cases work on branches.
    prefix: Session,
    options: &'a FidelityOptions,
    /// Blocks: the cases of a skill share them.
    blocks: HashMap<BlockKey, VerifiedBlock>,
}

/// A context up to the beginning of the answer.
struct Ready {
    session: Session,
    /// Logits of the answer's first token.
    first: Vec<f32>,
    ttft_ms: f64,
    n_grafted: usize,
    n_recomputed: usize,
}

/// What full prefill says, position by position.
struct Reference {
    /// Logits along the gold answer.
    answer: Vec<Vec<f32>>,
    /// Its own continuation.
    greedy: Vec<TokenId>,
    /// Logits along it.
    greedy_logits: Vec<Vec<f32>>,
    ttft_ms: f64,
}

impl<'a> Rig<'a> {
    pub(super) fn new(prefix: Session, options: &'a FidelityOptions) -> Self {
        Rig { prefix, options, blocks: HashMap::new() }
    }

    /// Runs a case by full prefill and by all methods.
    pub(super) fn run(
        &mut self,
        case: &EvalCase,
        tokens: &CaseTokens,
        watch: &Watch<'_>,
    ) -> Result<CaseRecord, Error> {
        let interrupt = watch.interrupt();
        let mut base = self.prefix.branch();
        base.prefill(&tokens.turn, "turn", &interrupt)?;
        let exact = full_prefill(&base, tokens, &interrupt)?;
        let reference = self.reference(exact, tokens, &interrupt)?;

        let mut modes = BTreeMap::new();
        for &method in &self.options.methods {
            let mut ready = match method {
                Method::Exact => self.second_prefill(tokens, &interrupt)?,
                Method::NoSkill => leave_out(&base, tokens, &interrupt)?,
                _ => self.graft(&base, method, tokens, &interrupt)?,
            };
            if method == Method::Exact {
                // The second prefill begins at nothing: the first is the usual turn.
                ready.ttft_ms = reference.ttft_ms;
            }
            modes.insert(method.name(), compare(&reference, &ready, tokens)?);
        }
        Ok(CaseRecord {
            id: case.id.clone(),
            question: case.question.clone(),
            answer: case.answer.clone(),
            continuation: answer_text(&base, &reference.greedy)?,
            block_tokens: tokens.target().block.len(),
            answer_tokens: tokens.answer.len(),
            modes,
        })
    }

    /// The logits that methods are compared with: along the gold answer, and along
    /// the greedy continuation, past the end of the answer if need be.
    fn reference(
        &self,
        exact: Ready,
        tokens: &CaseTokens,
        interrupt: Interrupt<'_>,
    ) -> Result<Reference, Error> {
        let answer = force(&exact.session, &exact.first, &tokens.answer)?;
        let mut session = exact.session.branch();
        let mut greedy = Vec::new();
        let mut greedy_logits = vec![exact.first];
        loop {
            greedy.push(arg_max(&greedy_logits[greedy.len()]));
            if greedy.len() == self.options.n_greedy {
                break;
            }
            let next = session.prefill(&greedy[greedy.len() - 1..], "answer", interrupt)?;
            greedy_logits.push(next.expect("one token gives logits"));
        }
        Ok(Reference { answer, greedy, greedy_logits, ttft_ms: exact.ttft_ms })
    }

    /// The same ids from nothing, in other chunks.
    fn second_prefill(
        &self,
        tokens: &CaseTokens,
        interrupt: Interrupt<'_>,
    ) -> Result<Ready, Error> {
        let ids = [self.prefix.tokens(), &tokens.turn, &with_skill(tokens)].concat();
        let mut session = Session::new(Arc::clone(self.prefix.model()));
        let started = Instant::now();
        let mut logits = None;
        for chunk in ids.chunks(summary::NOISE_CHUNK_TOKENS) {
            logits = session.prefill(chunk, "turn", interrupt)?;
        }
        Ok(Ready::new(session, logits, started))
    }

    /// Every skill grafted as a method does it.
    fn graft(
        &mut self,
        base: &Session,
        method: Method,
        tokens: &CaseTokens,
        interrupt: Interrupt<'_>,
    ) -> Result<Ready, Error> {
        let mut blocks = Vec::new();
        for skill in &tokens.skills {
            blocks.push(self.block(method, &tokens.opening, skill, interrupt)?);
        }
        let prompts = Prompts::new(base.model());
        let mut session = base.branch();
        let (mut n_grafted, mut n_recomputed) = (0, 0);
        let started = Instant::now();
        let mut before = tokens.opening.clone();
        for (skill, block) in tokens.skills.iter().zip(blocks) {
            before.extend_from_slice(&skill.header);
            session.prefill(&before, "header", interrupt)?;
            let span = session.graft(block, "skill")?;
            n_grafted += span.len as usize;
            if method == Method::Repair {
                let lines = prompts.repair(&skill.body, &skill.block, &tokens.request)?;
                let spans: Vec<TokenSpan> = lines
                    .iter()
                    .map(|lines| TokenSpan {
                        start: span.start + lines.start as u32,
                        len: lines.len() as u32,
                    })
                    .collect();
                session.recompute(&spans, interrupt)?;
                n_recomputed += lines.iter().map(std::ops::Range::len).sum::<usize>();
            }
            before.clone_from(&skill.closing);
        }
        let logits = session.prefill(&[&before[..], &tokens.question].concat(), "q", interrupt)?;
        Ok(Ready { n_grafted, n_recomputed, ..Ready::new(session, logits, started) })
    }

    /// The block that a method grafts, compiled when it is needed first.
    fn block(
        &mut self,
        method: Method,
        opening: &[TokenId],
        skill: &SkillTokens,
        interrupt: Interrupt<'_>,
    ) -> Result<VerifiedBlock, Error> {
        let model = self.prefix.model();
        let anchor = method.anchor(model, self.prefix.tokens(), opening, skill)?;
        let (anchor, anchor_tokens) = anchor.expect("a method that grafts has an anchor");
        let source = BlockSource {
            label: &skill.name,
            anchor,
            anchor_tokens: &anchor_tokens,
            tokens: &skill.block,
            salt: [0; 16],
        };
        let key = source.key(model);
        if let Some(block) = self.blocks.get(&key) {
            return Ok(block.clone());
        }
        let block = VerifiedBlock::from_compiled(compile_from(&self.prefix, &source, interrupt)?);
        self.blocks.insert(key, block.clone());
        Ok(block)
    }
}

impl Ready {
    fn new(session: Session, logits: Option<Vec<f32>>, started: Instant) -> Self {
        let ttft_ms = started.elapsed().as_secs_f64() * 1e3;
        let first = logits.expect("a question has tokens");
        Ready { session, first, ttft_ms, n_grafted: 0, n_recomputed: 0 }
    }
}

/// The text of an answer, up to the end of the turn.
fn answer_text(session: &Session, tokens: &[TokenId]) -> Result<String, Error> {
    let tokenizer = session.model().tokenizer();
    let ends = |token: &TokenId| tokenizer.is_end_of_turn(*token);
    let end = tokens.iter().position(ends).unwrap_or(tokens.len());
    Ok(tokenizer.decode(&tokens[..end])?)
}

/// From the skill's role marker to the beginning of the answer.
fn with_skill(tokens: &CaseTokens) -> Vec<TokenId> {
    let mut ids = tokens.opening.clone();
    for SkillTokens { header, block, closing, .. } in &tokens.skills {
        ids.extend([header, block, closing].map(Vec::as_slice).concat());
    }
    ids.extend_from_slice(&tokens.question);
    ids
}

fn full_prefill(
    base: &Session,
    tokens: &CaseTokens,
    interrupt: Interrupt<'_>,
) -> Result<Ready, Error> {
    let ids = with_skill(tokens);
    let mut session = base.branch();
    let started = Instant::now();
    let logits = session.prefill(&ids, "skill and question", interrupt)?;
    Ok(Ready::new(session, logits, started))
}

/// The question without the skill.
fn leave_out(
    base: &Session,
    tokens: &CaseTokens,
    interrupt: Interrupt<'_>,
) -> Result<Ready, Error> {
    let ids = [&tokens.opening[..], &tokens.question].concat();
    let mut session = base.branch();
    let started = Instant::now();
    let logits = session.prefill(&ids, "question", interrupt)?;
    Ok(Ready::new(session, logits, started))
}

/// Logits at each position of `tokens`, which follow a context; `first` are those
/// of the first.
pub(super) fn force(
    session: &Session,
    first: &[f32],
    tokens: &[TokenId],
) -> Result<Vec<Vec<f32>>, Error> {
    let mut session = session.branch();
    let rest = session.score(&tokens[..tokens.len() - 1], "answer")?;
    let rows = rest.chunks(first.len()).map(<[f32]>::to_vec);
    Ok(std::iter::once(first.to_vec()).chain(rows).collect())
}

fn compare(reference: &Reference, ready: &Ready, tokens: &CaseTokens) -> Result<CaseMethod, Error> {
    let answer = force(&ready.session, &ready.first, &tokens.answer)?;
    let greedy = force(&ready.session, &ready.first, &reference.greedy)?;
    let (kl, top1) = split(&reference.answer, &answer);
    let (greedy_kl, greedy_top1) = split(&reference.greedy_logits, &greedy);
    let gold = answer.iter().zip(&tokens.answer);
    Ok(CaseMethod {
        kl,
        top1,
        em: gold.into_iter().all(|(logits, &token)| arg_max(logits) == token),
        greedy_kl,
        greedy_top1,
        ttft_ms: ready.ttft_ms,
        grafted: ready.n_grafted,
        recomputed: ready.n_recomputed,
    })
}

fn split(reference: &[Vec<f32>], other: &[Vec<f32>]) -> (Vec<f64>, Vec<bool>) {
    assert_eq!(reference.len(), other.len(), "positions that were compared");
    let compared = reference.iter().zip(other).map(|(reference, other)| {
        let Divergence { kl, same_top1 } = divergence(reference, other);
        (kl, same_top1)
    });
    compared.unzip()
}
