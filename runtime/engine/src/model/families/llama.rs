//! The llama family: SmolLM2, Llama 2 and 3, and models of their shape.

use skillgraft_kv::{Relocatability, RopePairing, RopeScaling, RopeSpec};

use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::{DecoderSpec, QkRowOrder};

/// See the module's documentation.
pub(super) struct Llama;

impl Family for Llama {
    fn architecture(&self) -> &'static str {
        "llama"
    }

    fn spec(&self, file: &GgufFile) -> Result<DecoderSpec, EngineError> {
        if file.u32("llama.expert_count").unwrap_or(0) > 0 {
            return Err(EngineError::UnsupportedModel("mixture of experts".to_owned()));
        }
        let hidden_dim = file.require_u32("llama.embedding_length")? as usize;
        let n_heads = file.require_u32("llama.attention.head_count")? as usize;
        let n_kv_heads = file.u32("llama.attention.head_count_kv").map_or(n_heads, |n| n as usize);
        if n_heads == 0 || n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
            return Err(EngineError::UnsupportedModel(format!(
                "{n_heads} query heads with {n_kv_heads} KV heads"
            )));
        }
        let head_dim =
            file.u32("llama.attention.key_length").map_or(hidden_dim / n_heads, |n| n as usize);
        let rotary_dim = file.u32("llama.rope.dimension_count").map_or(head_dim, |n| n as usize);
        if rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
            return Err(EngineError::UnsupportedModel(format!(
                "{rotary_dim} rotated elements in a head of {head_dim}"
            )));
        }
        let context_length = file.require_u32("llama.context_length")?;
        Ok(DecoderSpec {
            family: self.architecture(),
            n_layers: file.require_u32("llama.block_count")? as usize,
            hidden_dim,
            ffn_dim: file.require_u32("llama.feed_forward_length")? as usize,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab_size: file.rows_of(self.names().token_embedding)?,
            context_length,
            rms_eps: file.require_f32("llama.attention.layer_norm_rms_epsilon")?,
            rope: RopeSpec {
                theta: file.f32("llama.rope.freq_base").map_or(10_000.0, f64::from),
                rotary_dim,
                pairing: RopePairing::HalfSplit,
                scaling: scaling(file, context_length)?,
            },
            relocatability: Relocatability::Relocatable,
            qk_rows: QkRowOrder::Interleaved,
        })
    }

    fn names(&self) -> WeightNames {
        WeightNames {
            token_embedding: "token_embd.weight",
            output_norm: "output_norm.weight",
            output: "output.weight",
            attn_norm: "attn_norm.weight",
            attn_q: "attn_q.weight",
            attn_k: "attn_k.weight",
            attn_v: "attn_v.weight",
            attn_output: "attn_output.weight",
            ffn_norm: "ffn_norm.weight",
            ffn_gate: "ffn_gate.weight",
            ffn_up: "ffn_up.weight",
            ffn_down: "ffn_down.weight",
        }
    }
}

/// Llama 3 files carry the divisors of its frequencies as a tensor.
fn scaling(file: &GgufFile, context_length: u32) -> Result<RopeScaling, EngineError> {
    if file.has_tensor("rope_freqs.weight") {
        return Ok(RopeScaling::Divisors(file.dequantize("rope_freqs.weight")?));
    }
    let factor = file.f32("llama.rope.scaling.factor").map(f64::from);
    match (file.str("llama.rope.scaling.type"), factor) {
        (None | Some("none"), _) => Ok(RopeScaling::None),
        (Some("linear"), Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (Some("yarn"), Some(factor)) => Ok(RopeScaling::Yarn {
            factor,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: file
                .u32("llama.rope.scaling.original_context_length")
                .unwrap_or(context_length),
            attention_factor: file.f32("llama.rope.scaling.attn_factor").map(f64::from),
        }),
        (Some(kind), _) => Err(EngineError::UnsupportedModel(format!("rope scaling `{kind}`"))),
    }
}
