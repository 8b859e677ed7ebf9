//! What all families read alike: `<architecture>.<key>` of a file's metadata.

use skillgraft_kernels::Gate;
use skillgraft_kv::{LayerAttention, Relocatability, RopePairing, RopeScaling, RopeSpec};

use super::WeightNames;
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::{DecoderSpec, QkRowOrder};

/// The metadata of a file of one architecture.
#[derive(Clone, Copy)]
pub(super) struct Metadata<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) architecture: &'static str,
}

impl Metadata<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// A whole number, `None` where the file has no such key.
    ///
    /// # Errors
    /// When the key holds something else, such as a number for each layer.
    pub(super) fn u32(&self, name: &str) -> Result<Option<u32>, EngineError> {
        let key = self.key(name);
        match self.file.u32(&key) {
            None if self.file.has_key(&key) => {
                Err(unsupported(format!("`{key}` is not one whole number")))
            }
            found => Ok(found),
        }
    }

    pub(super) fn require_u32(&self, name: &str) -> Result<u32, EngineError> {
        self.u32(name)?.ok_or_else(|| self.file.missing(&self.key(name)))
    }

    fn size(&self, name: &str) -> Result<Option<usize>, EngineError> {
        Ok(self.u32(name)?.map(|n| n as usize))
    }

    pub(super) fn f32(&self, name: &str) -> Option<f32> {
        self.file.f32(&self.key(name))
    }

    pub(super) fn str(&self, name: &str) -> Option<&str> {
        self.file.str(&self.key(name))
    }

    /// The spec of a plain decoder: pre-norm, one rotation, a gate of `SiLU`, and a window
    /// for all layers where the file has one. A family changes what differs.
    ///
    /// # Errors
    /// When a key is missing, or the model has what no family here has.
    pub(super) fn decoder(&self, names: &WeightNames) -> Result<DecoderSpec, EngineError> {
        self.refuse_extras()?;
        let hidden_dim = self.require_u32("embedding_length")? as usize;
        let n_layers = self.require_u32("block_count")? as usize;
        let n_heads = self.require_u32("attention.head_count")? as usize;
        let n_kv_heads = self.size("attention.head_count_kv")?.unwrap_or(n_heads);
        if n_heads == 0 || n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
            return Err(unsupported(format!("{n_heads} query heads with {n_kv_heads} KV heads")));
        }
        let head_dim = self.size("attention.key_length")?.unwrap_or(hidden_dim / n_heads);
        if head_dim == 0 || self.size("attention.value_length")?.is_some_and(|n| n != head_dim) {
            return Err(unsupported("keys and values of different lengths".to_owned()));
        }
        let context_length = self.require_u32("context_length")?;
        let window = self.size("attention.sliding_window")?.filter(|&window| window > 0);
        let scale = self.f32("attention.scale").filter(|&scale| scale != 0.0);
        Ok(DecoderSpec {
            family: self.architecture,
            n_layers,
            hidden_dim,
            ffn_dim: self.require_u32("feed_forward_length")? as usize,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab_size: self.file.rows_of(names.token_embedding)?,
            context_length,
            rms_eps: self.require_f32("attention.layer_norm_rms_epsilon")?,
            embedding_scale: 1.0,
            attention_scale: scale.unwrap_or(1.0 / (head_dim as f32).sqrt()),
            gate: Gate::Silu,
            ropes: vec![self.rope(head_dim, context_length)?],
            layers: vec![LayerAttention { rope: 0, window }; n_layers],
            relocatability: Relocatability::Relocatable,
            qk_rows: QkRowOrder::AsIs,
        })
    }

    fn require_f32(&self, name: &str) -> Result<f32, EngineError> {
        self.file.require_f32(&self.key(name))
    }

    /// What would change the results and is not computed here.
    fn refuse_extras(&self) -> Result<(), EngineError> {
        if self.u32("expert_count")?.unwrap_or(0) > 0 {
            return Err(unsupported("mixture of experts".to_owned()));
        }
        for name in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if self.f32(name).is_some_and(|cap| cap != 0.0) {
                return Err(unsupported(format!("`{}`", self.key(name))));
            }
        }
        Ok(())
    }

    fn rope(&self, head_dim: usize, context_length: u32) -> Result<RopeSpec, EngineError> {
        let rotary_dim = self.size("rope.dimension_count")?.unwrap_or(head_dim);
        if rotary_dim == 0 || rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
            return Err(unsupported(format!(
                "{rotary_dim} rotated elements in a head of {head_dim}"
            )));
        }
        Ok(RopeSpec {
            theta: self.f32("rope.freq_base").map_or(10_000.0, f64::from),
            rotary_dim,
            pairing: RopePairing::HalfSplit,
            scaling: self.scaling(context_length)?,
        })
    }

    fn scaling(&self, context_length: u32) -> Result<RopeScaling, EngineError> {
        let factor = self.f32("rope.scaling.factor").map(f64::from);
        match (self.str("rope.scaling.type"), factor) {
            // `longrope` is in tensors, which its family reads.
            (None | Some("none" | "longrope"), _) => Ok(RopeScaling::None),
            (Some("linear"), Some(factor)) => Ok(RopeScaling::Linear { factor }),
            (Some("yarn"), Some(factor)) => Ok(RopeScaling::Yarn {
                factor,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original_context: self
                    .u32("rope.scaling.original_context_length")?
                    .unwrap_or(context_length),
                attention_factor: self.f32("rope.scaling.attn_factor").map(f64::from),
            }),
            (Some(kind), _) => Err(unsupported(format!("rope scaling `{kind}`"))),
        }
    }
}

pub(super) fn unsupported(what: String) -> EngineError {
    EngineError::UnsupportedModel(what)
}
