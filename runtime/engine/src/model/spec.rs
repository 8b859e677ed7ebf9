//! What a decoder is made of, as data.

use skillgraft_kernels::Gate;
use skillgraft_kv::{KvDtype, KvGeometry, LayerAttention, Relocatability, RopeSpec};

/// Everything the one forward pass needs to know about a model. A family file
/// makes one from a model file's metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderSpec {
    /// Family name, as `general.architecture` has it.
    pub family: &'static str,
    /// Decoder layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden_dim: usize,
    /// Width inside the gated MLP.
    pub ffn_dim: usize,
    /// Query heads.
    pub n_heads: usize,
    /// KV heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest context the model was made for, in tokens.
    pub context_length: u32,
    /// Epsilon of RMS norm.
    pub rms_eps: f32,
    /// What embeddings are multiplied by.
    pub embedding_scale: f32,
    /// What attention scores are multiplied by; usually `head_dim^-1/2` (Vaswani
    /// et al. 2017).
    pub attention_scale: f32,
    /// Activation of the gated MLP.
    pub gate: Gate,
    /// Rotations of Q and K.
    pub ropes: Vec<RopeSpec>,
    /// The rotation and the window of each layer, `[n_layers]`.
    pub layers: Vec<LayerAttention>,
    /// Whether blocks of this model can be moved.
    pub relocatability: Relocatability,
    /// Row order of the Q and K projections in the file.
    pub qk_rows: QkRowOrder,
}

/// How the rows of the Q and K projections are ordered inside a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkRowOrder {
    /// As [`RopeSpec::pairing`] wants them.
    AsIs,
    /// GGUF's llama order, rows `2i` and `2i + 1` a pair: put back to half-split
    /// while loading, so that every model has the same K layout.
    Interleaved {
        /// Leading elements of a head that are rotated.
        rotary_dim: usize,
    },
}

impl DecoderSpec {
    /// Shape of the model's KV when kept as `dtype`.
    pub fn kv_geometry(&self, dtype: KvDtype) -> KvGeometry {
        KvGeometry {
            n_layers: self.n_layers,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            dtype,
        }
    }
}
