//! One case: full prefill, then every method beside it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use skillgraft_engine::{BlockSource, Interrupt, Session, arg_max, compile};
use skillgraft_kv::{TokenId, VerifiedBlock};

use super::evalset::EvalCase;
use super::layout::CaseTokens;
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
    /// Blocks by skill and method: the cases of a skill share them.
    blocks: HashMap<(String, Method), VerifiedBlock>,
}

/// A context up to the beginning of the answer.
struct Ready {
    session: Session,
    /// Logits of the answer's first token.
    first: Vec<f32>,
    ttft_ms: f64,
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
            let block = self.block(method, case, tokens, &interrupt)?;
            let mut ready = match (method, block) {
                (Method::Exact, _) => self.second_prefill(tokens, &interrupt)?,
                (_, Some(block)) => graft(&base, block, tokens, &interrupt)?,
                (_, None) => leave_out(&base, tokens, &interrupt)?,
            };
            if method == Method::Exact {
                // The second prefill begins at nothing: the first is the usual turn.
                ready.ttft_ms = reference.ttft_ms;
            }
            modes.insert(method.name(), compare(&reference, &ready, tokens)?);
        }
        Ok(CaseRecord {
            id: case.id.clone(),
            block_tokens: tokens.block.len(),
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

    /// The block that a method grafts, compiled when it is needed first.
    fn block(
        &mut self,
        method: Method,
        case: &EvalCase,
        tokens: &CaseTokens,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<VerifiedBlock>, Error> {
        let model = self.prefix.model();
        let Some((anchor, anchor_tokens)) = method.anchor(model, self.prefix.tokens(), tokens)?
        else {
            return Ok(None);
        };
        let name = (case.skills[0].clone(), method);
        if let Some(block) = self.blocks.get(&name) {
            return Ok(Some(block.clone()));
        }
        let source = BlockSource {
            label: &case.skills[0],
            anchor,
            anchor_tokens: &anchor_tokens,
            tokens: &tokens.block,
            salt: [0; 16],
        };
        let block = VerifiedBlock::from_compiled(compile(model, &source, interrupt)?);
        self.blocks.insert(name, block.clone());
        Ok(Some(block))
    }
}

impl Ready {
    fn new(session: Session, logits: Option<Vec<f32>>, started: Instant) -> Self {
        let ttft_ms = started.elapsed().as_secs_f64() * 1e3;
        Ready { session, first: logits.expect("a question has tokens"), ttft_ms }
    }
}

/// From the skill's role marker to the beginning of the answer.
fn with_skill(tokens: &CaseTokens) -> Vec<TokenId> {
    let CaseTokens { opening, header, block, closing, question, .. } = tokens;
    [opening, header, block, closing, question].map(Vec::as_slice).concat()
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

fn graft(
    base: &Session,
    block: VerifiedBlock,
    tokens: &CaseTokens,
    interrupt: Interrupt<'_>,
) -> Result<Ready, Error> {
    let header = [&tokens.opening[..], &tokens.header].concat();
    let rest = [&tokens.closing[..], &tokens.question].concat();
    let mut session = base.branch();
    let started = Instant::now();
    session.prefill(&header, "header", interrupt)?;
    session.graft(block, "skill")?;
    let logits = session.prefill(&rest, "question", interrupt)?;
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
