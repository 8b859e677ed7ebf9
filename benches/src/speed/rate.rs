//! Tokens per second, and what the machine allows.

use std::sync::Arc;
use std::time::Instant;

use skillgraft_engine::{DecoderSpec, Session, arg_max};

use super::{Lab, ms_since};
use crate::error::Error;
use crate::report::{DecodeRate, PrefillRate};
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
    // The first is a warm-up.
    for round in 0..=lab.plan.repeat {
        let mut session = Session::new(Arc::clone(model));
        let started = Instant::now();
        session.prefill(&tokens, "text", &watch.interrupt())?;
        if round > 0 {
            seconds.push(started.elapsed().as_secs_f64());
        }
    }
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
    })
}

/// Measures decoding behind `context` tokens. Greedy, and it goes on past the end
/// of an answer: what a token is changes nothing about its cost.
pub(super) fn decode(
    lab: &Lab<'_>,
    context: usize,
    read_gb_s: f64,
    watch: &mut Watch<'_>,
) -> Result<DecodeRate, Error> {
    watch.step(&format!("decoding behind {context} tokens"))?;
    let model = lab.prefix.model();
    let mut session = Session::new(Arc::clone(model));
    // One token at least must be there to decode from; another is a warm-up.
    let tokens = lab.texts.first(context.max(1));
    let interrupt = watch.interrupt();
    let mut logits = session.prefill(&tokens, "text", &interrupt)?.expect("a text has tokens");
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
    })
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
