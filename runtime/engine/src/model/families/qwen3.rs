//! The qwen3 family: every head of Q and K is normed before it is rotated, and
//! the length of a head does not follow from the width.

use super::metadata::Metadata;
use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::DecoderSpec;

/// See the module's documentation.
pub(super) struct Qwen3;

impl Family for Qwen3 {
    fn architecture(&self) -> &'static str {
        "qwen3"
    }

    fn spec(&self, file: &GgufFile, _limit: Option<u32>) -> Result<DecoderSpec, EngineError> {
        Metadata { file, architecture: self.architecture() }.decoder(&self.names())
    }

    fn names(&self) -> WeightNames {
        WeightNames {
            attn_q_norm: Some("attn_q_norm.weight"),
            attn_k_norm: Some("attn_k_norm.weight"),
            ..WeightNames::PLAIN
        }
    }
}
