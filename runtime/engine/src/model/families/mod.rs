//! One file per model family: metadata to [`DecoderSpec`], and weight names.
//! A new family is one file here and one line in [`FAMILIES`].

mod llama;

use super::spec::DecoderSpec;
use crate::error::EngineError;
use crate::load::GgufFile;

/// A model family.
pub(crate) trait Family: Sync {
    /// `general.architecture` of its files.
    fn architecture(&self) -> &'static str;

    /// Reads the spec from a file's metadata.
    fn spec(&self, file: &GgufFile) -> Result<DecoderSpec, EngineError>;

    /// Names of the tensors.
    fn names(&self) -> WeightNames;
}

/// Tensor names of a family; those of a layer follow `blk.<layer>.`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightNames {
    /// Token embedding, `[vocab_size, hidden_dim]`.
    pub(crate) token_embedding: &'static str,
    /// Norm before the output head, `[hidden_dim]`.
    pub(crate) output_norm: &'static str,
    /// Output head, `[vocab_size, hidden_dim]`; where absent the embedding serves.
    pub(crate) output: &'static str,
    /// Norm before attention, `[hidden_dim]`.
    pub(crate) attn_norm: &'static str,
    /// Query projection, `[n_heads * head_dim, hidden_dim]`.
    pub(crate) attn_q: &'static str,
    /// Key projection, `[n_kv_heads * head_dim, hidden_dim]`.
    pub(crate) attn_k: &'static str,
    /// Value projection, `[n_kv_heads * head_dim, hidden_dim]`.
    pub(crate) attn_v: &'static str,
    /// Output projection of attention, `[hidden_dim, n_heads * head_dim]`.
    pub(crate) attn_output: &'static str,
    /// Norm before the MLP, `[hidden_dim]`.
    pub(crate) ffn_norm: &'static str,
    /// Gate of the MLP, `[ffn_dim, hidden_dim]`.
    pub(crate) ffn_gate: &'static str,
    /// Up projection of the MLP, `[ffn_dim, hidden_dim]`.
    pub(crate) ffn_up: &'static str,
    /// Down projection of the MLP, `[hidden_dim, ffn_dim]`.
    pub(crate) ffn_down: &'static str,
}

/// The supported families.
const FAMILIES: [&dyn Family; 1] = [&llama::Llama];

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
