//! One file per model family: metadata to [`DecoderSpec`], and weight names.
//! A new family is one file here and one line in [`FAMILIES`].

mod gemma3;
mod llama;
mod metadata;
mod phi3;
mod qwen2;
mod qwen3;

use super::spec::DecoderSpec;
use crate::error::EngineError;
use crate::load::GgufFile;

/// A model family.
pub(crate) trait Family: Sync {
    /// `general.architecture` of its files.
    fn architecture(&self) -> &'static str;

    /// Reads the spec from a file's metadata. `limit` is the longest
    /// context the user wants, in tokens; `None` leaves it to the model.
    fn spec(&self, file: &GgufFile, limit: Option<u32>) -> Result<DecoderSpec, EngineError>;

    /// Names of the tensors.
    fn names(&self) -> WeightNames;
}

/// Tensor names of a family; those of a layer follow `blk.<layer>.`. A file with
/// any other tensor is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightNames {
    /// Token embedding, `[vocab_size, hidden_dim]`.
    pub(crate) token_embedding: &'static str,
    /// Norm before the output head, `[hidden_dim]`.
    pub(crate) output_norm: &'static str,
    /// Output head, `[vocab_size, hidden_dim]`; where absent the embedding serves.
    pub(crate) output: &'static str,
    /// What [`Family::spec`] may read.
    pub(crate) rope: &'static [&'static str],
    /// Norm before attention, `[hidden_dim]`.
    pub(crate) attn_norm: &'static str,
    /// Projections of Q, `[n_heads * head_dim, hidden_dim]`, of K and of V,
    /// `[n_kv_heads * head_dim, hidden_dim]` each; or one tensor with their rows,
    /// one below the other.
    pub(crate) attn_qkv: &'static [&'static str],
    /// Their biases; none for a family without.
    pub(crate) attn_qkv_bias: &'static [&'static str],
    /// Norm of each query head, `[head_dim]`.
    pub(crate) attn_q_norm: Option<&'static str>,
    /// Norm of each key head, `[head_dim]`.
    pub(crate) attn_k_norm: Option<&'static str>,
    /// Output projection of attention, `[hidden_dim, n_heads * head_dim]`.
    pub(crate) attn_output: &'static str,
    /// Norm of what attention adds, `[hidden_dim]`.
    pub(crate) attn_post_norm: Option<&'static str>,
    /// Norm before the MLP, `[hidden_dim]`.
    pub(crate) ffn_norm: &'static str,
    /// Gate and up projections of the MLP, `[ffn_dim, hidden_dim]` each; or one
    /// tensor with their rows, one below the other.
    pub(crate) ffn_gate_up: &'static [&'static str],
    /// Down projection of the MLP, `[hidden_dim, ffn_dim]`.
    pub(crate) ffn_down: &'static str,
    /// Norm of what the MLP adds, `[hidden_dim]`.
    pub(crate) ffn_post_norm: Option<&'static str>,
}

impl WeightNames {
    /// The names that most families share.
    const PLAIN: WeightNames = WeightNames {
        token_embedding: "token_embd.weight",
        output_norm: "output_norm.weight",
        output: "output.weight",
        rope: &[],
        attn_norm: "attn_norm.weight",
        attn_qkv: &["attn_q.weight", "attn_k.weight", "attn_v.weight"],
        attn_qkv_bias: &[],
        attn_q_norm: None,
        attn_k_norm: None,
        attn_output: "attn_output.weight",
        attn_post_norm: None,
        ffn_norm: "ffn_norm.weight",
        ffn_gate_up: &["ffn_gate.weight", "ffn_up.weight"],
        ffn_down: "ffn_down.weight",
        ffn_post_norm: None,
    };

    /// Tensors of the whole model.
    pub(crate) fn of_model(&self) -> impl Iterator<Item = &'static str> {
        let ends = [self.token_embedding, self.output_norm, self.output];
        ends.into_iter().chain(self.rope.iter().copied())
    }

    /// Tensors of each layer, without the layer's prefix.
    pub(crate) fn of_layer(&self) -> impl Iterator<Item = &'static str> {
        let always = [self.attn_norm, self.attn_output, self.ffn_norm, self.ffn_down];
        let maybe = [self.attn_q_norm, self.attn_k_norm, self.attn_post_norm, self.ffn_post_norm];
        let lists = [self.attn_qkv, self.attn_qkv_bias, self.ffn_gate_up];
        always
            .into_iter()
            .chain(maybe.into_iter().flatten())
            .chain(lists.into_iter().flatten().copied())
    }
}

/// The supported families.
const FAMILIES: [&dyn Family; 5] =
    [&llama::Llama, &qwen2::Qwen2, &qwen3::Qwen3, &gemma3::Gemma3, &phi3::Phi3];

/// Architectures of the supported families.
pub fn supported_architectures() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.architecture()).collect()
}

/// The family of a file.
pub(crate) fn family_of(file: &GgufFile) -> Result<&'static dyn Family, EngineError> {
    let architecture = file.architecture()?;
    FAMILIES.into_iter().find(|family| family.architecture() == architecture).ok_or_else(|| {
        EngineError::UnsupportedArchitecture {
            found: architecture.to_owned(),
            supported: supported_architectures().join(", "),
        }
    })
}
