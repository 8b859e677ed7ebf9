//! Vocabularies that were trained with SentencePiece's BPE: tokens with scores,
//! and no list of merges. Of two neighbours, those are joined first whose whole
//! has the best score (Kudo and Richardson 2018).
//!
//! Some want a space before a text. Texts are encoded piece by piece here, so a
//! space is put only where a text certainly begins: behind a control token.
//!
//! **Refuses:** vocabularies that cannot spell every byte.

use std::collections::HashMap;

use skillgraft_kv::TokenId;
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

/// The tokenizer of tokens with their scores and types, without control tokens.
///
/// # Errors
/// [`EngineError::Tokenizer`] when the vocabulary is incomplete, or of a kind
/// that is not supported.
pub(super) fn sentence_piece(
    tokens: &[&str],
    scores: &[f32],
    types: &[u32],
) -> Result<Tokenizer, EngineError> {
    let refused = |reason: &str| Err(EngineError::Tokenizer(reason.to_owned()));
    if scores.len() != tokens.len() || types.len() != tokens.len() {
        return refused("a `llama` vocabulary needs a score and a type for each token");
    }
    if types.iter().filter(|&&kind| kind == BYTE).count() != 256 {
        return refused("a `llama` vocabulary without a token for every byte is not supported");
    }

    let vocabulary: Vocab =
        tokens.iter().zip(0u32..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary, merges(tokens, scores, types))
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

/// Control tokens, behind which a text begins.
#[derive(Debug)]
pub(super) struct TextStarts(Vec<(String, TokenId)>);

impl TextStarts {
    /// Those of a file; `None` for a vocabulary that wants no space before a text.
    pub(super) fn of(file: &GgufFile, tokens: &[&str], control: &[bool]) -> Option<Self> {
        // Where the key is absent a space is wanted.
        if !file.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true) {
            return None;
        }
        let controls = tokens.iter().zip(0..).zip(control).filter(|&(_, &is_control)| is_control);
        Some(TextStarts(
            controls.map(|((token, id), _)| ((*token).to_owned(), TokenId(id))).collect(),
        ))
    }

    /// Encodes markup; `content` encodes what lies between control tokens.
    pub(super) fn encode(
        &self,
        mut markup: &str,
        content: impl Fn(&str) -> Result<Vec<TokenId>, EngineError>,
    ) -> Result<Vec<TokenId>, EngineError> {
        let mut ids = Vec::new();
        let mut is_start = false;
        loop {
            let next = self.first_in(markup);
            let text = next.map_or(markup, |(at, ..)| &markup[..at]);
            if is_start && !text.is_empty() {
                ids.extend(content(&format!(" {text}"))?);
            } else {
                ids.extend(content(text)?);
            }
            let Some((at, len, id)) = next else { return Ok(ids) };
            ids.push(id);
            markup = &markup[at + len..];
            is_start = true;
        }
    }

    /// Where the first control token is, its length, and its id; the longest of
    /// those that begin there.
    fn first_in(&self, markup: &str) -> Option<(usize, usize, TokenId)> {
        let found = self
            .0
            .iter()
            .filter_map(|(token, id)| markup.find(token.as_str()).map(|at| (at, token.len(), *id)));
        found.min_by_key(|&(at, len, _)| (at, std::cmp::Reverse(len)))
    }
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
