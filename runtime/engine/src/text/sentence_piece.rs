//! Vocabularies that were trained with SentencePiece's BPE: tokens with scores,
//! and no list of merges. Of two neighbours, those are joined first whose whole
//! has the best score (Kudo and Richardson 2018).
//!
//! **Refuses:** vocabularies that want a space before the text. Texts are encoded
//! piece by piece here, and only the first would want one.

use std::collections::HashMap;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::{AddedToken, Tokenizer};

use super::tokenizer::{USER_DEFINED, tokenizer_error};
use crate::error::EngineError;
use crate::load::GgufFile;

/// `tokenizer.ggml.token_type` of an ordinary token.
const NORMAL: u32 = 1;
/// `tokenizer.ggml.token_type` of a token that stands for a byte.
const BYTE: u32 = 6;
/// How SentencePiece writes a space.
const SPACE: &str = "\u{2581}";

/// The tokenizer of a file, without its control tokens.
///
/// # Errors
/// [`EngineError::Tokenizer`] when the vocabulary is incomplete, or of a kind
/// that is not supported.
pub(super) fn sentence_piece(
    file: &GgufFile,
    tokens: &[&str],
    types: &[u32],
) -> Result<Tokenizer, EngineError> {
    let refused = |reason: &str| Err(EngineError::Tokenizer(reason.to_owned()));
    // Where the key is absent a space is wanted.
    if file.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true) {
        return refused("a vocabulary with a space before every text is not supported");
    }
    let scores = file.floats("tokenizer.ggml.scores").unwrap_or_default();
    if scores.len() != tokens.len() || types.len() != tokens.len() {
        return refused("a `llama` vocabulary needs a score and a type for each token");
    }
    if types.iter().filter(|&&kind| kind == BYTE).count() != 256 {
        return refused("a `llama` vocabulary without a token for every byte is not supported");
    }

    let vocabulary: Vocab =
        tokens.iter().zip(0u32..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary, merges(tokens, &scores, types))
        .byte_fallback(true)
        .build()
        .map_err(tokenizer_error)?;
    let mut tokenizer = Tokenizer::new(bpe);
    let replace = |pattern: &str, by: &str| {
        Replace::new(ReplacePattern::String(pattern.to_owned()), by).map_err(tokenizer_error)
    };
    tokenizer.with_normalizer(Some(replace(" ", SPACE)?)).map_err(tokenizer_error)?;
    tokenizer.with_decoder(Some(DecoderWrapper::Sequence(Sequence::new(vec![
        replace(SPACE, " ")?.into(),
        ByteFallback::default().into(),
        Fuse::default().into(),
    ]))));
    // Runs of spaces, line ends and the like are found before anything is joined.
    let found_whole: Vec<AddedToken> = tokens
        .iter()
        .zip(types)
        .filter(|&(_, &kind)| kind == USER_DEFINED)
        .map(|(token, _)| AddedToken::from(*token, false).normalized(false))
        .collect();
    tokenizer.add_tokens(found_whole).map_err(tokenizer_error)?;
    Ok(tokenizer)
}

/// Every way to join two tokens into a third, the best first.
fn merges(tokens: &[&str], scores: &[f32], types: &[u32]) -> Vec<(String, String)> {
    let is_normal = |id: &usize| types[*id] == NORMAL;
    let ids: HashMap<&str, usize> =
        (0..tokens.len()).filter(is_normal).map(|id| (tokens[id], id)).collect();
    let mut by_score: Vec<usize> = (0..tokens.len()).filter(is_normal).collect();
    by_score.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut merges = Vec::new();
    for id in by_score {
        let token = tokens[id];
        let cuts = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        let mut pairs: Vec<(usize, usize)> =
            cuts.filter_map(|(left, right)| Some((*ids.get(left)?, *ids.get(right)?))).collect();
        pairs.sort_unstable();
        let texts = pairs.into_iter().map(|(l, r)| (tokens[l].to_owned(), tokens[r].to_owned()));
        merges.extend(texts);
    }
    merges
}
