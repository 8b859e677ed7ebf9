//! The one forward pass.

use skillgraft_kernels::{QueryFrames, RopeTable};
use skillgraft_kv::{LayerIdx, Position, TokenId};

use super::families::Family;
use super::spec::DecoderSpec;
use super::weights::{self, LayerWeights, Weights};
use crate::backend::{AttentionSpec, Backend, Sequence};
use crate::cache::SegmentedCache;
use crate::error::EngineError;
use crate::load::GgufFile;

/// A decoder-only transformer with pre-norm blocks, grouped-query attention and
/// a gated MLP.
pub struct Decoder<B: Backend> {
    spec: DecoderSpec,
    weights: Weights<B>,
    rope: RopeTable,
}

/// New tokens of one sequence.
#[derive(Debug)]
pub struct Step<'a, B: Backend> {
    /// The sequence's context; the tokens are appended to it.
    pub cache: &'a mut SegmentedCache<B>,
    /// The tokens, at least one and at most [`PAGE_TOKENS`](crate::PAGE_TOKENS).
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
        let rope = RopeTable::new(&spec.rope);
        Ok(Decoder { spec, weights, rope })
    }

    /// What the model is made of.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
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

    /// Runs the new tokens of all sequences through the model, appends their KV,
    /// and returns the wanted logits of each sequence, `[n_wanted, vocab_size]`.
    ///
    /// # Panics
    /// When a step has no token or more than a page holds, or a token is outside
    /// the vocabulary.
    pub fn forward(&self, backend: &B, steps: &mut [Step<'_, B>]) -> Vec<Vec<f32>> {
        let tokens: Vec<TokenId> = steps.iter().flat_map(|step| step.tokens).copied().collect();
        let wanted: Vec<Vec<usize>> = wanted_rows(steps);
        let mut sequences = self.sequences(backend, steps);

        let mut hidden = backend.embed(&self.weights.token_embedding, &tokens);
        for (layer, weights) in (0..).map(LayerIdx).zip(&self.weights.layers) {
            let x = backend.rms_norm(&hidden, &weights.attn_norm, self.spec.rms_eps);
            let qkv = backend.linear(&x, &weights.attn_qkv);
            let attended = backend.attention(&self.attention_spec(layer), qkv, &mut sequences);
            backend.linear_add(&attended, &weights.attn_output, &mut hidden);

            let x = backend.rms_norm(&hidden, &weights.ffn_norm, self.spec.rms_eps);
            let gated = backend.gated(&x, &weights.ffn_gate_up);
            backend.linear_add(&gated, &weights.ffn_down, &mut hidden);
        }

        let head = self.weights.output.as_ref().unwrap_or(&self.weights.token_embedding);
        if wanted.iter().all(Vec::is_empty) {
            return vec![Vec::new(); wanted.len()];
        }
        let x = backend.rms_norm(&hidden, &self.weights.output_norm, self.spec.rms_eps);
        wanted.iter().map(|rows| backend.logits(&x, rows, head)).collect()
    }

    fn attention_spec(&self, layer: LayerIdx) -> AttentionSpec {
        AttentionSpec {
            layer,
            n_heads: self.spec.n_heads,
            n_kv_heads: self.spec.n_kv_heads,
            head_dim: self.spec.head_dim,
            scale: self.spec.attention_scale(),
        }
    }

    /// Makes room for the new tokens and works out where their queries are
    /// rotated to, once for all layers.
    fn sequences<'a>(&self, backend: &B, steps: &'a mut [Step<'_, B>]) -> Vec<Sequence<'a, B>> {
        let mut first_row = 0;
        steps
            .iter_mut()
            .map(|step| {
                assert!(!step.tokens.is_empty(), "a step needs at least one token");
                let rows = first_row..first_row + step.tokens.len();
                first_row = rows.end;
                let start = step.cache.end();
                let positions: Vec<Position> =
                    (0..rows.len() as u32).map(|row| start + row).collect();
                let angles =
                    self.rope.angles(positions.iter().map(|position| i64::from(position.0)));
                let frames = QueryFrames::new(&self.rope, &positions, step.cache.deltas());
                step.cache.reserve(backend, rows.len());
                Sequence { cache: &mut *step.cache, rows, angles, frames }
            })
            .collect()
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
