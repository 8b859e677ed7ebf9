//! Peers on the turns and texts that ours are measured on.
//!
//! **Invariant:** what puts a peer's cache into its state is not timed, and what
//! the state was is read from the peer's own counts.

use std::time::{Duration, Instant};

use skillgraft_engine::{Session, arg_max};
use skillgraft_kv::TokenId;

use super::Lab;
use crate::error::Error;
use crate::peer::{Answer, Ask, Peer};
use crate::report::{PeerRate, PeerTiming, Ratio};
use crate::stats::{median, median_interval, percentile};
use crate::watch::Watch;

/// Tokens of the answers that are compared.
pub(super) const N_COMPARED: usize = 16;
/// Tokens of the text that a skill has moved away from, or behind.
const N_MOVED_BY: usize = 128;
/// Shortest chunk that a peer is asked to move: llama.cpp's documentation has 256
/// as an example; less is more favourable to it.
const REUSE: usize = 64;
/// Above this length only the states that say something new are measured: a slow
/// peer takes minutes for one turn.
const LONG: usize = 2048;
/// A workload with peers ends after so long.
const BUDGET: Duration = Duration::from_secs(45);
/// Rounds that are made in any case.
const MIN_ROUNDS: usize = 3;

/// Whether another round is due: all that were planned, or with slow peers what
/// fits into the budget.
pub(super) fn goes_on(lab: &Lab<'_>, round: usize, started: Instant) -> bool {
    let in_time = lab.peers.is_empty() || started.elapsed() < BUDGET;
    round < lab.plan.repeat && (round < MIN_ROUNDS || in_time)
}

/// What a peer has in its cache when a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing it may use.
    Cold,
    /// The static prefix: the skill is new.
    Prefix,
    /// Prefix and skill in their places: only the message is new.
    Skill,
    /// Prefix, another text, skill: the text between has gone, and the peer may
    /// shift the skill's keys to the left.
    MovedLeft,
    /// Prefix and skill; now another text stands between them.
    MovedBehind,
}

impl State {
    /// The states measured for a skill of some tokens.
    pub(super) fn of_length(n_tokens: usize) -> &'static [State] {
        if n_tokens > LONG {
            &[State::Prefix, State::Skill]
        } else {
            &[State::Cold, State::Prefix, State::Skill, State::MovedLeft, State::MovedBehind]
        }
    }

    /// Tokens that a turn with a skill of `n_tokens` has in front of it in some state.
    pub(super) fn n_between(n_tokens: usize) -> usize {
        if Self::of_length(n_tokens).contains(&State::MovedBehind) { N_MOVED_BY } else { 0 }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            State::Cold => "cold",
            State::Prefix => "prefix",
            State::Skill => "skill",
            State::MovedLeft => "moved-left",
            State::MovedBehind => "moved-behind",
        }
    }
}

/// The text that a skill moves behind. It is none of the skill's.
pub(super) fn between(lab: &Lab<'_>) -> Vec<TokenId> {
    let mut tokens = lab.texts.first(N_MOVED_BY);
    tokens.reverse();
    tokens
}

/// Brings a peer into a state, and asks it for the first tokens of a turn.
pub(super) fn turn(
    lab: &Lab<'_>,
    peer: &Peer,
    state: State,
    skill: &[TokenId],
    n_predict: usize,
) -> Result<Answer, Error> {
    let texts = lab.texts;
    let between = between(lab);
    let [prefix, opening, message] = [&texts.prefix[..], &texts.opening, &texts.message];
    let turn = [prefix, opening, skill, message].concat();
    let cached = Ask { n_predict, ..Ask::CACHED };
    let (before, turn, ask) = match state {
        State::Cold => (None, turn, Ask { cached: false, ..cached }),
        State::Prefix => (Some(prefix.to_vec()), turn, cached),
        State::Skill => (Some([prefix, opening, skill].concat()), turn, cached),
        State::MovedLeft => {
            let before = [prefix, &between, opening, skill].concat();
            (Some(before), turn, Ask { reuse: REUSE, ..cached })
        }
        State::MovedBehind => {
            let before = [prefix, opening, skill].concat();
            let turn = [prefix, &between, opening, skill, message].concat();
            (Some(before), turn, Ask { reuse: REUSE, ..cached })
        }
    };
    if let Some(before) = before {
        peer.ask(&before, Ask::CACHED)?;
    }
    peer.ask(&turn, ask)
}

/// Our own greedy continuation, the end of the turn ignored.
pub(super) fn continuation(
    mut session: Session,
    mut logits: Vec<f32>,
    watch: &Watch<'_>,
) -> Result<Vec<u32>, Error> {
    let mut tokens = Vec::new();
    while tokens.len() < N_COMPARED && session.ledger().room() > 0 {
        let token = arg_max(&logits);
        tokens.push(token.0);
        let next = session.prefill(&[token], "answer", &watch.interrupt())?;
        logits = next.expect("one token gives logits");
    }
    Ok(tokens)
}

/// TTFTs of ours, one for each round, that a peer is compared with.
pub(super) struct Ours<'a> {
    pub(super) disk: &'a [f64],
    pub(super) memory: Option<&'a [f64]>,
    pub(super) exact: Option<&'a [f64]>,
    pub(super) answer: &'a [u32],
}

/// Summarises a peer's turns, one for each round; `said` is a longer answer.
pub(super) fn timing(turns: &[Answer], said: &[u32], ours: &Ours<'_>) -> PeerTiming {
    let ttft_ms: Vec<f64> = turns.iter().map(|turn| turn.ttft_ms).collect();
    let prompt_ms: Vec<f64> = turns.iter().map(|turn| turn.prompt_ms).collect();
    PeerTiming {
        ttft_ms: median(&ttft_ms),
        ttft_min_ms: percentile(&ttft_ms, 0.0),
        ttft_max_ms: percentile(&ttft_ms, 1.0),
        n: turns.len(),
        prefilled: turns[0].prefilled,
        cached: turns[0].cached,
        prompt_ms: median(&prompt_ms),
        ratio: ratio(&ttft_ms, ours.disk),
        ratio_memory: ours.memory.map(|memory| ratio(&ttft_ms, memory)),
        ratio_exact: ours.exact.map(|exact| ratio(&ttft_ms, exact)),
        equal_tokens: said.iter().zip(ours.answer).take_while(|(a, b)| a == b).count(),
        compared_tokens: said.len().min(ours.answer.len()),
    }
}

/// Summarises a peer's rates, one for each round of ours.
pub(super) fn rate(peer: &[f64], ours: &[f64]) -> PeerRate {
    PeerRate {
        tok_s: median(peer),
        min_tok_s: percentile(peer, 0.0),
        max_tok_s: percentile(peer, 1.0),
        ratio: ratio(ours, peer),
    }
}

/// How many times as large `numerators` are, round by round.
pub(super) fn ratio(numerators: &[f64], denominators: &[f64]) -> Ratio {
    let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(a, b)| a / b).collect();
    let interval = median_interval(&ratios);
    Ratio {
        median: interval.median,
        low: interval.low,
        high: interval.high,
        coverage: interval.coverage,
        n: ratios.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ttft_ms: f64) -> Answer {
        let tokens = vec![1];
        Answer { ttft_ms, tokens, cached: 3, prefilled: 5, prompt_ms: 1.0, decode_tok_s: None }
    }

    #[test]
    fn a_peer_that_is_faster_has_a_ratio_below_one() {
        let ours =
            Ours { disk: &[4.0, 8.0], memory: Some(&[1.0, 2.0]), exact: None, answer: &[7, 8, 9] };
        let timing = timing(&[answer(2.0), answer(4.0)], &[7, 8, 1], &ours);
        assert!((timing.ratio.median - 0.5).abs() < 1e-9);
        assert!((timing.ratio_memory.expect("given").median - 2.0).abs() < 1e-9);
        assert_eq!(timing.ratio_exact, None);
        assert_eq!((timing.equal_tokens, timing.compared_tokens), (2, 3));
        assert!((rate(&[100.0], &[50.0]).ratio.median - 0.5).abs() < 1e-9);
    }
}
