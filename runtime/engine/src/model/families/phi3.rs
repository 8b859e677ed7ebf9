//! The phi3 family: Phi-3, Phi-3.5 and Phi-4-mini. Q, K and V are one tensor, as
//! are gate and up; only a part of a head may be rotated.
//!
//! Models for long contexts have two tables of divisors (LongRoPE, arXiv
//! 2402.13753): one for contexts up to the length of the first training, one for
//! longer ones. A table is chosen when the model is loaded: the short one, unless
//! the user wants a longer context.

use skillgraft_kv::{Relocatability, RopeScaling};

use super::metadata::Metadata;
use super::{Family, WeightNames};
use crate::error::EngineError;
use crate::load::GgufFile;
use crate::model::spec::DecoderSpec;

const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";

/// See the module's documentation.
pub(super) struct Phi3;

impl Family for Phi3 {
    fn architecture(&self) -> &'static str {
        "phi3"
    }

    fn spec(&self, file: &GgufFile, limit: Option<u32>) -> Result<DecoderSpec, EngineError> {
        let metadata = Metadata { file, architecture: self.architecture() };
        let mut spec = metadata.decoder(&self.names())?;
        if !file.has_tensor(SHORT) && !file.has_tensor(LONG) {
            return Ok(spec);
        }
        let original = metadata.require_u32("rope.scaling.original_context_length")?;
        let is_long = limit.is_some_and(|limit| limit > original);
        let rope = &mut spec.ropes[0];
        let divisors =
            file.dequantize_len(if is_long { LONG } else { SHORT }, rope.rotary_dim / 2)?;
        let attention_factor = match metadata.f32("rope.scaling.attn_factor") {
            Some(factor) => f64::from(factor),
            None => attention_factor(spec.context_length, original),
        };
        rope.scaling = RopeScaling::LongRope { divisors, attention_factor };
        if is_long {
            spec.relocatability = Relocatability::Fixed(format!(
                "beyond {original} tokens this model's rotation (LongRoPE) depends on the length \
                 of the context"
            ));
        } else {
            spec.context_length = spec.context_length.min(original);
        }
        Ok(spec)
    }

    fn names(&self) -> WeightNames {
        WeightNames {
            rope: &[SHORT, LONG],
            attn_qkv: &["attn_qkv.weight"],
            ffn_gate_up: &["ffn_up.weight"],
            ..WeightNames::PLAIN
        }
    }
}

/// `sqrt(1 + ln(s) / ln(original))`, `s` being how many times longer the context
/// got (arXiv 2402.13753).
fn attention_factor(context_length: u32, original: u32) -> f64 {
    let stretch = f64::from(context_length) / f64::from(original);
    if stretch > 1.0 { (1.0 + stretch.ln() / f64::from(original).ln()).sqrt() } else { 1.0 }
}
