//! The llama family: SmolLM2, Llama 2 and 3, Mistral, and models of their shape.

use skillgraft_kv::RopeScaling;

use super::metadata::{Metadata, unsupported};
use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::{DecoderSpec, QkRowOrder};

/// Llama 3 files carry the divisors of its frequencies as a tensor.
const ROPE_FREQS: &str = "rope_freqs.weight";

/// See the module's documentation.
pub(super) struct Llama;

impl Family for Llama {
    fn architecture(&self) -> &'static str {
        "llama"
    }

    fn spec(&self, file: &GgufFile, _limit: Option<u32>) -> Result<DecoderSpec, EngineError> {
        let metadata = Metadata { file, architecture: self.architecture() };
        let mut spec = metadata.decoder(&self.names())?;
        let rope = &mut spec.ropes[0];
        if file.has_tensor(ROPE_FREQS) {
            if rope.scaling != RopeScaling::None {
                return Err(unsupported(format!("`{ROPE_FREQS}` and a rope scaling")));
            }
            rope.scaling =
                RopeScaling::Divisors(file.dequantize_len(ROPE_FREQS, rope.rotary_dim / 2)?);
        }
        spec.qk_rows = QkRowOrder::Interleaved { rotary_dim: rope.rotary_dim };
        Ok(spec)
    }

    fn names(&self) -> WeightNames {
        WeightNames { rope: &[ROPE_FREQS], ..WeightNames::PLAIN }
    }
}
