//! How a byte-level BPE vocabulary splits text before merging, by the name that
//! a GGUF file gives it in `tokenizer.ggml.pre`. A wrong split gives wrong token
//! ids without any error, so an unlisted name is refused.

use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use crate::error::EngineError;

/// The expression of Llama 3's tokenizer: digits in groups of up to three.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The expression of Qwen2's tokenizer: every digit on its own.
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Names that [`pre_tokenizer`] knows.
const KNOWN: [&str; 6] = ["smollm", "gpt-2", "default", "llama-bpe", "llama3", "qwen2"];

/// What is done to text before it is split: Qwen2's tokenizer composes
/// characters (Unicode's NFC).
pub(super) fn normalizer(name: &str) -> Option<NormalizerWrapper> {
    (name == "qwen2").then(|| NFC.into())
}

/// The pre-tokenizer of that name.
///
/// # Errors
/// [`EngineError::Tokenizer`] for a name that is not listed here.
pub(super) fn pre_tokenizer(name: &str) -> Result<PreTokenizerWrapper, EngineError> {
    let gpt2 = ByteLevel::new(false, true, true);
    match name {
        // Every digit on its own, then GPT-2's expression.
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into()),
        "gpt-2" | "default" => Ok(gpt2.into()),
        "llama-bpe" | "llama3" => split_then_bytes(LLAMA_3),
        "qwen2" => split_then_bytes(QWEN_2),
        other => Err(EngineError::Tokenizer(format!(
            "unsupported pre-tokenizer `{other}`; supported: {}",
            KNOWN.join(", ")
        ))),
    }
}

/// Splits by an expression, then spells bytes as GPT-2 does.
fn split_then_bytes(expression: &str) -> Result<PreTokenizerWrapper, EngineError> {
    let pattern = SplitPattern::Regex(expression.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| EngineError::Tokenizer(error.to_string()))?;
    let bytes = ByteLevel::new(false, true, false);
    Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
}
