//! The shape of a model's KV.

use crate::KvDtype;

/// The shape of one model's KV. Each layer has one K and one V tensor,
/// `[n_kv_heads, n_tokens, head_dim]`, row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvGeometry {
    /// Decoder layers.
    pub n_layers: usize,
    /// KV heads of a layer (fewer than query heads under GQA).
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Element type.
    pub dtype: KvDtype,
}

impl KvGeometry {
    /// Elements of one K (or V) tensor of `n_tokens` tokens in one layer.
    pub const fn tensor_len(&self, n_tokens: usize) -> usize {
        self.n_kv_heads * n_tokens * self.head_dim
    }

    /// Bytes of K and V together, over all layers, for `n_tokens` tokens.
    pub const fn bytes(&self, n_tokens: usize) -> usize {
        2 * self.n_layers * self.tensor_len(n_tokens) * self.dtype.size_bytes()
    }
}
