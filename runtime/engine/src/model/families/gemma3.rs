//! The gemma3 family, text only: norms of heads and around both halves of a
//! layer, scaled embeddings, GELU. Most layers are local: they see a window, and
//! rotate by another base than the global ones.
//!
//! The `1 +` of Gemma's norms is in the weights of a GGUF file.

use skillgraft_kernels::Gate;
use skillgraft_kv::{LayerAttention, RopeScaling, RopeSpec};

use super::metadata::{Metadata, unsupported};
use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::DecoderSpec;

/// The last of this many layers is global, where a file does not say
/// (`sliding_window_pattern` of all published models).
const PATTERN: u32 = 6;
/// Base of the local layers' frequencies, where a file does not say
/// (`rope_local_base_freq` of all published models).
const LOCAL_THETA: f32 = 10_000.0;
/// Layers of the 27B model, whose scores are scaled by its width per head
/// (`query_pre_attn_scalar` 168); those of others by the length of a head. Files
/// do not say; the number of layers is how llama.cpp knows too.
const LAYERS_27B: usize = 62;

/// See the module's documentation.
pub(super) struct Gemma3;

impl Family for Gemma3 {
    fn architecture(&self) -> &'static str {
        "gemma3"
    }

    fn spec(&self, file: &GgufFile, _limit: Option<u32>) -> Result<DecoderSpec, EngineError> {
        let metadata = Metadata { file, architecture: self.architecture() };
        let mut spec = metadata.decoder(&self.names())?;
        spec.embedding_scale = (spec.hidden_dim as f32).sqrt();
        spec.gate = Gate::GeluTanh;
        if spec.n_layers == LAYERS_27B {
            spec.attention_scale = 1.0 / ((spec.hidden_dim / spec.n_heads) as f32).sqrt();
        }
        let pattern = metadata.u32("attention.sliding_window_pattern")?.unwrap_or(PATTERN) as usize;
        let Some(window) = spec.layers.first().and_then(|layer| layer.window) else {
            return Err(unsupported("gemma3 without a sliding window".to_owned()));
        };
        if pattern == 0 {
            return Err(unsupported("a pattern of no layers".to_owned()));
        }
        let theta = metadata.f32("rope.freq_base_swa").unwrap_or(LOCAL_THETA);
        // Only the global layers are stretched for long contexts.
        let local = RopeSpec {
            theta: f64::from(theta),
            scaling: RopeScaling::None,
            ..spec.ropes[0].clone()
        };
        spec.ropes.push(local);
        for (idx, layer) in spec.layers.iter_mut().enumerate() {
            let is_global = (idx + 1).is_multiple_of(pattern);
            *layer = if is_global {
                LayerAttention { rope: 0, window: None }
            } else {
                LayerAttention { rope: 1, window: Some(window) }
            };
        }
        Ok(spec)
    }

    fn names(&self) -> WeightNames {
        WeightNames {
            attn_q_norm: Some("attn_q_norm.weight"),
            attn_k_norm: Some("attn_k_norm.weight"),
            attn_post_norm: Some("post_attention_norm.weight"),
            ffn_post_norm: Some("post_ffw_norm.weight"),
            ..WeightNames::PLAIN
        }
    }
}
