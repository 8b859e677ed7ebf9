//! Tokens per second, and what the machine allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use skillgraft_engine::{DecoderSpec, Session, arg_max};
use skillgraft_kv::TokenId;

use super::{Lab, ms_since, peers};
use crate::error::Error;
use crate::peer::Ask;
use crate::report::{DecodeRate, PeerRate, PrefillRate};
use crate::stats::{median, percentile};
use crate::watch::Watch;

/// Measures prefilling `n_tokens` into an empty context.
pub(super) fn prefill(
    lab: &Lab<'_>,
    n_tokens: usize,
    watch: &mut Watch<'_>,
) -> Result<PrefillRate, Error> {
    watch.step(&format!("prefilling {n_tokens} tokens"))?;
    let model = lab.prefix.model();
    let tokens = lab.texts.first(n_tokens);
    let mut seconds = Vec::new();
    let mut peers: Vec<Vec<f64>> = vec![Vec::new(); lab.peers.len()];
    let first = Instant::now();
    let mut n_timed = 0;
    // The first is a warm-up.
    for round in 0.. {
        if !peers::goes_on(lab, n_timed, first) {
            break;
        }
        let mut session = Session::new(Arc::clone(model));
        let started = Instant::now();
        session.prefill(&tokens, "text", &watch.interrupt())?;
        let elapsed = started.elapsed().as_secs_f64();
        for (peer, rates) in lab.peers.iter().zip(&mut peers) {
            watch.step(&format!("{}: prefilling {n_tokens} tokens", peer.name()))?;
            let answer = peer.ask(&tokens, Ask::COLD)?;
            if round > 0 {
                rates.push(answer.prefilled as f64 / answer.prompt_ms * 1e3);
            }
        }
        if round > 0 {
            seconds.push(elapsed);
            n_timed += 1;
        }
    }
    let ours: Vec<f64> = seconds.iter().map(|seconds| n_tokens as f64 / seconds).collect();
    let weights = Weights::of(model.spec());
    let flop = 2.0 * (weights.layers as f64 * n_tokens as f64 + weights.head as f64);
    let rate = |seconds: f64| n_tokens as f64 / seconds;
    Ok(PrefillRate {
        tokens: n_tokens,
        tok_s: rate(median(&seconds)),
        min_tok_s: rate(percentile(&seconds, 1.0)),
        max_tok_s: rate(percentile(&seconds, 0.0)),
        n: seconds.len(),
        gflop_s: flop / median(&seconds) / 1e9,
        peers: by_name(lab, &peers, &ours),
    })
}

/// A peer's rates by its name.
fn by_name(lab: &Lab<'_>, peers: &[Vec<f64>], ours: &[f64]) -> BTreeMap<String, PeerRate> {
    let named = lab.peers.iter().zip(peers);
    named.map(|(peer, rates)| (peer.name().to_owned(), peers::rate(rates, ours))).collect()
}

/// Measures decoding behind `context` tokens. Greedy, and it goes on past the end
/// of an answer: what a token is changes nothing about its cost. Beside peers it is
/// done several times, in turn with them.
pub(super) fn decode(
    lab: &Lab<'_>,
    context: usize,
    read_gb_s: f64,
    watch: &mut Watch<'_>,
) -> Result<DecodeRate, Error> {
    // One token at least must be there to decode from.
    let tokens = lab.texts.first(context.max(1));
    let n_rounds = if lab.peers.is_empty() { 1 } else { lab.plan.repeat };
    let ask = Ask { n_predict: lab.plan.n_decoded + 1, ..Ask::COLD };
    let (mut tpot_ms, mut ours) = (Vec::new(), Vec::new());
    let mut peers: Vec<Vec<f64>> = vec![Vec::new(); lab.peers.len()];
    let started = Instant::now();
    for round in 0..n_rounds {
        if !peers::goes_on(lab, round, started) {
            break;
        }
        watch.step(&format!("decoding behind {context} tokens"))?;
        let times = decode_once(lab, &tokens, watch)?;
        ours.push(times.len() as f64 / times.iter().sum::<f64>() * 1e3);
        tpot_ms.extend(times);
        for (peer, rates) in lab.peers.iter().zip(&mut peers) {
            watch.step(&format!("{}: decoding behind {context} tokens", peer.name()))?;
            let rate = peer.ask(&tokens, ask)?.decode_tok_s;
            rates.push(rate.ok_or_else(|| peer.fault("it tells no decoding rate"))?);
        }
    }
    let model = lab.prefix.model();
    let tok_s = 1e3 / median(&tpot_ms);
    let weight_bytes = model.weight_bytes();
    let kv_bytes = model.kv_geometry().bytes(context);
    let limit_tok_s = read_gb_s * 1e9 / (weight_bytes + kv_bytes) as f64;
    Ok(DecodeRate {
        context,
        tok_s,
        tpot_ms: median(&tpot_ms),
        tpot_min_ms: percentile(&tpot_ms, 0.0),
        tpot_p95_ms: percentile(&tpot_ms, 0.95),
        n: tpot_ms.len(),
        weight_bytes: Some(weight_bytes),
        kv_bytes,
        limit_tok_s: Some(limit_tok_s),
        limit_fraction: Some(tok_s / limit_tok_s),
        peers: by_name(lab, &peers, &ours),
    })
}

/// Times of single tokens, in milliseconds, after one for warming up.
fn decode_once(lab: &Lab<'_>, tokens: &[TokenId], watch: &Watch<'_>) -> Result<Vec<f64>, Error> {
    let mut session = Session::new(Arc::clone(lab.prefix.model()));
    let interrupt = watch.interrupt();
    let mut logits = session.prefill(tokens, "text", &interrupt)?.expect("a text has tokens");
    let mut tpot_ms = Vec::new();
    for round in 0..=lab.plan.n_decoded {
        let started = Instant::now();
        let token = arg_max(&logits);
        let next = session.prefill(&[token], "answer", &interrupt)?;
        logits = next.expect("one token gives logits");
        if round > 0 {
            tpot_ms.push(ms_since(started));
        }
    }
    Ok(tpot_ms)
}

/// Weights of the matrix products of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weights {
    layers: usize,
    head: usize,
}

impl Weights {
    fn of(spec: &DecoderSpec) -> Self {
        let qkv = spec.hidden_dim * (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim;
        let output = spec.n_heads * spec.head_dim * spec.hidden_dim;
        let mlp = 3 * spec.hidden_dim * spec.ffn_dim;
        Weights {
            layers: spec.n_layers * (qkv + output + mlp),
            head: spec.vocab_size * spec.hidden_dim,
        }
    }
}
