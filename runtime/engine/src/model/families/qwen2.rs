//! The qwen2 family: Qwen2, Qwen2.5 and Qwen2.5-Coder. Q, K and V have biases.

use super::metadata::Metadata;
use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::DecoderSpec;

/// See the module's documentation.
pub(super) struct Qwen2;

impl Family for Qwen2 {
    fn architecture(&self) -> &'static str {
        "qwen2"
    }

    fn spec(&self, file: &GgufFile, _limit: Option<u32>) -> Result<DecoderSpec, EngineError> {
        Metadata { file, architecture: self.architecture() }.decoder(&self.names())
    }

    fn names(&self) -> WeightNames {
        WeightNames {
            attn_qkv_bias: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
            ..WeightNames::PLAIN
        }
    }
}
