//! Verified decoding: an answer begins on grafted KV while the same tokens are
//! prefilled exactly beside it; then it is checked, corrected at the first
//! difference, and goes on exactly.
//!
//! **Invariant:** the answer is what decoding behind a full prefill gives, token by
//! token, whatever sampling is in use: the check draws the same random numbers.
//! The context that is left holds exact KV only.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use skillgraft_kv::{Position, TokenId};

use crate::backend::Backend;
use crate::decode::{Answer, DecodeOptions, Decoded, Flow, StopReason};
use crate::error::EngineError;
use crate::session::{Session, uninterrupted};

/// Tokens that are checked in one pass: some 2 MB of logits at a vocabulary of
/// 50,000.
const CHECK_ROWS: usize = 10;

/// What becomes visible of an answer that is being verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEvent<'a> {
    /// More text.
    Text(&'a str),
    /// Of the text so far only the first `keep_bytes` hold.
    Corrected {
        /// Bytes that stay.
        keep_bytes: usize,
    },
}

/// What verifying an answer found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Verified {
    /// Tokens of the context that were prefilled exactly; 0 when all were exact.
    pub prefilled_tokens: usize,
    /// Tokens of the answer that were decoded on grafted KV and checked.
    pub checked_tokens: usize,
    /// The first token that differed, counted from 0; `None` when none did.
    pub first_difference: Option<usize>,
    /// The exact prefill, beside the decoding, in milliseconds.
    pub prefill_ms: f64,
    /// What the answer waited for it at its end, in milliseconds.
    pub wait_ms: f64,
    /// Whether the caller stopped the answer before it could be checked.
    pub is_unchecked: bool,
}

/// Decodes an answer as [`decode`](crate::decode) would behind a full prefill of
/// the context. `logits` are those of the last token of the context as it is. The
/// session is the exact one afterwards, unless `on_event` stopped the answer before
/// it was checked.
///
/// # Errors
/// [`EngineError::Tokenizer`].
///
/// # Panics
/// When `logits` is empty.
pub fn decode_verified<B: Backend>(
    session: &mut Session<B>,
    logits: &[f32],
    options: &DecodeOptions,
    on_event: OnEvent<'_>,
) -> Result<(Decoded, Verified), EngineError> {
    let model = Arc::clone(session.model());
    let (start, exact_end) = (session.end(), session.exact_end());
    let mut draft = Answer::new(&model, *options);
    // The first token is not to wait for work beside it.
    let first = draft.step(session, logits, &mut texts(on_event))?;
    if exact_end == start {
        return Ok((go_on(session, draft, first, on_event)?, Verified::default()));
    }
    let unread = Unread::of(session, exact_end, start)?;
    let mut verified = Verified { prefilled_tokens: unread.n_tokens(), ..Verified::default() };
    let Raced { stop, exact, wait_ms } = race(session, &mut draft, first, unread, on_event)?;
    verified.wait_ms = wait_ms;
    if stop == Some(StopReason::Interrupted) {
        verified.is_unchecked = true;
        return Ok((draft.finish(StopReason::Interrupted, &mut texts(on_event))?, verified));
    }
    let exact = exact?;
    verified.prefill_ms = exact.ms;
    verified.checked_tokens = draft.tokens.len();

    let Checked { session: exact, answer: mut right, next } = check(exact, &draft, stop, options)?;
    *session = exact;
    right.first_token_at = draft.first_token_at;
    if right.text.len() < draft.text.len() {
        let _ = on_event(AnswerEvent::Corrected { keep_bytes: right.text.len() });
    }
    let next = match next {
        Next::Same(flow) => flow,
        Next::Other(token) => {
            verified.first_difference = Some(right.tokens.len());
            right.accept(session, token, &mut texts(on_event))?
        }
    };
    Ok((go_on(session, right, next, on_event)?, verified))
}

/// Gets what becomes visible; breaking stops the answer.
type OnEvent<'a> = &'a mut dyn FnMut(AnswerEvent<'_>) -> ControlFlow<()>;

fn texts(on_event: OnEvent<'_>) -> impl FnMut(&str) -> ControlFlow<()> {
    |text| on_event(AnswerEvent::Text(text))
}

/// Decodes to the end.
fn go_on<B: Backend>(
    session: &mut Session<B>,
    mut answer: Answer<'_, B>,
    mut flow: Flow,
    on_event: OnEvent<'_>,
) -> Result<Decoded, EngineError> {
    loop {
        match flow {
            Flow::Next(logits) => flow = answer.step(session, &logits, &mut texts(on_event))?,
            Flow::Stop(stop) => return answer.finish(stop, &mut texts(on_event)),
        }
    }
}

/// A branch that ends where approximation begins, and what follows there.
struct Unread<B: Backend> {
    base: Session<B>,
    /// Tokens with the labels of their segments.
    rest: Vec<(Vec<TokenId>, String)>,
}

/// A context that was prefilled, with the logits of its last token.
struct Exact<B: Backend> {
    session: Session<B>,
    logits: Vec<f32>,
    ms: f64,
}

impl<B: Backend> Unread<B> {
    /// What of `session` between `exact_end` and `end` is to be prefilled.
    fn of(session: &Session<B>, exact_end: Position, end: Position) -> Result<Self, EngineError> {
        let mut rest = Vec::new();
        for segment in session.ledger().segments() {
            let (from, to) = (segment.span.start.max(exact_end), segment.span.end().min(end));
            if from < to {
                let tokens = session.tokens()[from.index()..to.index()].to_vec();
                rest.push((tokens, segment.label.clone()));
            }
        }
        let mut base = session.branch();
        base.roll_back(exact_end)?;
        Ok(Unread { base, rest })
    }

    fn n_tokens(&self) -> usize {
        self.rest.iter().map(|(tokens, _)| tokens.len()).sum()
    }

    fn prefill(self, is_unwanted: &AtomicBool) -> Result<Exact<B>, EngineError> {
        let Unread { base: mut session, rest } = self;
        let interrupt = || {
            if is_unwanted.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let started = Instant::now();
        let mut logits = Vec::new();
        for (tokens, label) in &rest {
            logits = session.prefill(tokens, label, &interrupt)?.expect("segments have tokens");
        }
        Ok(Exact { session, logits, ms: started.elapsed().as_secs_f64() * 1e3 })
    }
}

/// How far a draft came beside the exact prefill.
struct Raced<B: Backend> {
    /// Why the draft ended; `None` when the prefill was ready first.
    stop: Option<StopReason>,
    exact: Result<Exact<B>, EngineError>,
    wait_ms: f64,
}

/// Decodes the draft until the exact prefill is ready or the draft ends.
fn race<B: Backend>(
    session: &mut Session<B>,
    draft: &mut Answer<'_, B>,
    flow: Flow,
    unread: Unread<B>,
    on_event: OnEvent<'_>,
) -> Result<Raced<B>, EngineError> {
    let is_unwanted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let prefill = scope.spawn(|| unread.prefill(&is_unwanted));
        let stop = run_draft(session, draft, flow, &|| prefill.is_finished(), on_event);
        if matches!(stop, Err(_) | Ok(Some(StopReason::Interrupted))) {
            is_unwanted.store(true, Ordering::Relaxed);
        }
        let waited = Instant::now();
        let exact = prefill.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Raced { stop: stop?, exact, wait_ms: waited.elapsed().as_secs_f64() * 1e3 })
    })
}

/// Decodes a draft until it ends, or `is_ready`: then there is no reason to stop.
fn run_draft<B: Backend>(
    session: &mut Session<B>,
    draft: &mut Answer<'_, B>,
    mut flow: Flow,
    is_ready: &dyn Fn() -> bool,
    on_event: OnEvent<'_>,
) -> Result<Option<StopReason>, EngineError> {
    loop {
        match flow {
            Flow::Stop(stop) => return Ok(Some(stop)),
            Flow::Next(_) if is_ready() => return Ok(None),
            Flow::Next(logits) => flow = draft.step(session, &logits, &mut texts(on_event))?,
        }
    }
}

/// As much of a draft as is right, on exact KV.
struct Checked<'m, B: Backend> {
    session: Session<B>,
    answer: Answer<'m, B>,
    next: Next,
}

/// What follows the part that is right.
enum Next {
    /// What followed in the draft.
    Same(Flow),
    /// Another token than in the draft.
    Other(TokenId),
}

/// Chooses the draft's tokens again, by exact logits and the same random numbers,
/// up to the first that differs.
fn check<'m, B: Backend>(
    exact: Exact<B>,
    draft: &Answer<'m, B>,
    stop: Option<StopReason>,
    options: &DecodeOptions,
) -> Result<Checked<'m, B>, EngineError> {
    let Exact { mut session, logits: mut rows, .. } = exact;
    let (start, vocab_size) = (session.end().index(), rows.len());
    let mut answer = Answer::new(draft.model(), *options);
    let expected: Vec<TokenId> = draft.tokens.iter().chain(&draft.end).copied().collect();
    // Of the logits at hand the first choose this token of the answer.
    let mut first_row = 0;
    for (at, &token) in expected.iter().enumerate() {
        if (at - first_row) * vocab_size == rows.len() {
            // What follows the last one nobody asks for, and it may not fit.
            let end = (at - 1 + CHECK_ROWS).min(expected.len() - 1);
            rows = session.score(&expected[at - 1..end], "answer")?;
            first_row = at;
        }
        let row = &rows[(at - first_row) * vocab_size..][..vocab_size];
        let own = answer.sampler.sample(row, &session.tokens()[..start + at]);
        if own != token {
            session.roll_back(Position((start + at) as u32))?;
            return Ok(Checked { session, answer, next: Next::Other(own) });
        }
        if at < draft.tokens.len() {
            answer.push(token)?;
        }
    }
    let flow = match (stop, expected.last()) {
        (Some(stop), _) => Flow::Stop(stop),
        (None, Some(&last)) => {
            let next = session.prefill(&[last], "answer", &uninterrupted)?;
            Flow::Next(next.expect("one token gives logits"))
        }
        (None, None) => Flow::Next(rows),
    };
    Ok(Checked { session, answer, next: Next::Same(flow) })
}
