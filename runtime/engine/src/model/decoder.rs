//! The one forward pass.

use skillgraft_kernels::{QueryFrames, RopeTable};
use skillgraft_kv::{LayerAttention, LayerIdx, Position, PositionDelta, TokenId, TokenSpan};

use super::families::Family;
use super::spec::DecoderSpec;
use super::weights::{self, LayerWeights, Weights};
use crate::backend::{AttentionSpec, Backend, HeadSpan, Run, Sequence, Turns};
use crate::cache::SegmentedCache;
use crate::error::EngineError;
use crate::load::GgufFile;

/// A decoder-only transformer with pre-norm blocks, grouped-query attention and
/// a gated MLP. What differs from family to family is data: in [`DecoderSpec`],
/// or a weight that is there or not.
pub struct Decoder<B: Backend> {
    spec: DecoderSpec,
    weights: Weights<B>,
    /// One for each of [`DecoderSpec::ropes`].
    ropes: Vec<RopeTable>,
}

/// New tokens of one sequence.
#[derive(Debug)]
pub struct Step<'a, B: Backend> {
    /// The sequence's context, with room for the tokens.
    pub cache: &'a mut SegmentedCache<B>,
    /// Where they are in it, in the order of the context.
    pub spans: &'a [TokenSpan],
    /// The tokens, at least one.
    pub tokens: &'a [TokenId],
    /// Whose logits are wanted.
    pub logits: LogitRows,
}

/// Which rows of a step get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitRows {
    /// None.
    None,
    /// The last.
    Last,
    /// All.
    All,
}

impl<B: Backend> Decoder<B> {
    pub(crate) fn load(
        file: &GgufFile,
        family: &dyn Family,
        spec: DecoderSpec,
        backend: &B,
    ) -> Result<Self, EngineError> {
        let weights = weights::load(file, &spec, &family.names(), backend)?;
        let ropes = spec.ropes.iter().map(RopeTable::new).collect();
        Ok(Decoder { spec, weights, ropes })
    }

    /// What the model is made of.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// The rotation of a layer.
    pub(crate) fn rope(&self, layer: LayerIdx) -> &RopeTable {
        &self.ropes[self.spec.layers[layer.index()].rope]
    }

    /// Bytes of packed weights that one token's products read.
    pub fn weight_bytes(&self, backend: &B) -> usize {
        let layer = |layer: &LayerWeights<B>| {
            [&layer.attn_qkv, &layer.attn_output, &layer.ffn_gate_up, &layer.ffn_down]
                .map(|weights| backend.linear_bytes(weights))
                .iter()
                .sum::<usize>()
        };
        let head = self.weights.output.as_ref().unwrap_or(&self.weights.token_embedding);
        self.weights.layers.iter().map(layer).sum::<usize>() + backend.linear_bytes(head)
    }

    /// Runs the new tokens of all sequences through the model, puts their KV where
    /// room was made for it, and returns the wanted logits of each sequence,
    /// `[n_wanted, vocab_size]`.
    ///
    /// # Panics
    /// When a step has no token or no room for one, or a token is outside the
    /// vocabulary.
    pub fn forward(&self, backend: &B, steps: &mut [Step<'_, B>]) -> Vec<Vec<f32>> {
        let tokens: Vec<TokenId> = steps.iter().flat_map(|step| step.tokens).copied().collect();
        let wanted: Vec<Vec<usize>> = wanted_rows(steps);
        let mut sequences = self.sequences(steps);

        let (table, eps) = (&self.weights.token_embedding, self.spec.rms_eps);
        let mut hidden = backend.embed(table, &tokens, self.spec.embedding_scale);
        for (layer, weights) in (0..).map(LayerIdx).zip(&self.weights.layers) {
            let x = backend.rms_norm(&hidden, &weights.attn_norm, eps);
            let mut qkv = backend.linear(&x, &weights.attn_qkv, weights.attn_qkv_bias.as_ref());
            self.norm_heads(backend, weights, &mut qkv);
            let attended = backend.attention(&self.attention_spec(layer), qkv, &mut sequences);
            let post = weights.attn_post_norm.as_ref();
            self.add_to(backend, &attended, &weights.attn_output, post, &mut hidden);

            let x = backend.rms_norm(&hidden, &weights.ffn_norm, eps);
            let gated = backend.gated(&x, &weights.ffn_gate_up, self.spec.gate);
            let post = weights.ffn_post_norm.as_ref();
            self.add_to(backend, &gated, &weights.ffn_down, post, &mut hidden);
        }

        let head = self.weights.output.as_ref().unwrap_or(table);
        if wanted.iter().all(Vec::is_empty) {
            return vec![Vec::new(); wanted.len()];
        }
        let x = backend.rms_norm(&hidden, &self.weights.output_norm, eps);
        wanted.iter().map(|rows| backend.logits(&x, rows, head)).collect()
    }

    /// Norms each head of Q and of K, where the model does.
    fn norm_heads(&self, backend: &B, weights: &LayerWeights<B>, qkv: &mut B::Hidden) {
        let DecoderSpec { n_heads, n_kv_heads, head_dim, rms_eps, .. } = self.spec;
        if let Some(norm) = &weights.attn_q_norm {
            backend.head_norm(qkv, HeadSpan { at: 0, n_heads }, norm, rms_eps);
        }
        if let Some(norm) = &weights.attn_k_norm {
            let keys = HeadSpan { at: n_heads * head_dim, n_heads: n_kv_heads };
            backend.head_norm(qkv, keys, norm, rms_eps);
        }
    }

    /// `hidden += x W^T`, normed before it is added where the model does.
    fn add_to(
        &self,
        backend: &B,
        x: &B::Hidden,
        weights: &B::Linear,
        post_norm: Option<&B::Vector>,
        hidden: &mut B::Hidden,
    ) {
        match post_norm {
            None => backend.linear_add(x, weights, hidden),
            Some(norm) => {
                let y = backend.linear(x, weights, None);
                backend.add(&backend.rms_norm(&y, norm, self.spec.rms_eps), hidden);
            }
        }
    }

    fn attention_spec(&self, layer: LayerIdx) -> AttentionSpec {
        let LayerAttention { rope, window } = self.spec.layers[layer.index()];
        AttentionSpec {
            layer,
            n_heads: self.spec.n_heads,
            n_kv_heads: self.spec.n_kv_heads,
            head_dim: self.spec.head_dim,
            scale: self.spec.attention_scale,
            rope,
            window,
        }
    }

    /// Works out where the queries of the new tokens are rotated to, once for all
    /// layers.
    fn sequences<'a>(&self, steps: &'a mut [Step<'_, B>]) -> Vec<Sequence<'a, B>> {
        let mut first_row = 0;
        let mut sequence = |step: &'a mut Step<'_, B>| {
            assert!(!step.tokens.is_empty(), "a step needs at least one token");
            let deltas = step.cache.deltas();
            let mut run = |&span: &TokenSpan| {
                let rows = first_row..first_row + span.len as usize;
                first_row = rows.end;
                Run { rows, span, turns: self.turns(span, &deltas) }
            };
            let runs: Vec<Run> = step.spans.iter().map(&mut run).collect();
            let n_rows: usize = runs.iter().map(|run| run.rows.len()).sum();
            assert_eq!(n_rows, step.tokens.len(), "a token for each place");
            Sequence { cache: &mut *step.cache, runs }
        };
        steps.iter_mut().map(&mut sequence).collect()
    }

    fn turns(&self, span: TokenSpan, deltas: &[PositionDelta]) -> Vec<Turns> {
        let positions: Vec<Position> = (0..span.len).map(|row| span.start + row).collect();
        let turns = self.ropes.iter().map(|rope| Turns {
            angles: rope.angles(positions.iter().map(|position| i64::from(position.0))),
            frames: QueryFrames::new(rope, &positions, deltas.iter().copied()),
        });
        turns.collect()
    }
}

/// The rows, among those of all steps, whose logits are wanted.
fn wanted_rows<B: Backend>(steps: &[Step<'_, B>]) -> Vec<Vec<usize>> {
    let mut first_row = 0;
    steps
        .iter()
        .map(|step| {
            let rows = first_row..first_row + step.tokens.len();
            first_row = rows.end;
            match step.logits {
                LogitRows::None => Vec::new(),
                LogitRows::Last => vec![rows.end - 1],
                LogitRows::All => rows.collect(),
            }
        })
        .collect()
}
