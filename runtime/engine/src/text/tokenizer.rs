//! The tokenizer of a model file.
//!
//! Text comes from two kinds of source, and they are encoded differently: what
//! the chat template writes may contain control tokens such as `<|im_end|>`;
//! what a user, a skill or a tool wrote may not, and such a sequence in it is
//! spelled out as ordinary characters.

use std::ops::Range;

use skillgraft_kv::TokenId;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, Tokenizer};

use super::pre_tokenizer::{normalizer, pre_tokenizer};
use super::sentence_piece::{TextStarts, sentence_piece};
use crate::error::EngineError;
use crate::load::GgufFile;

/// `tokenizer.ggml.token_type` of a control token.
const CONTROL: u32 = 3;
/// `tokenizer.ggml.token_type` of a token that a user of the vocabulary added.
pub(super) const USER_DEFINED: u32 = 4;

/// `tokenizer.ggml.model` of SentencePiece's vocabularies.
const SENTENCE_PIECE: &str = "llama";

/// Control tokens that end a turn in the chat formats in use, whether a file
/// names them or not: one has the end of a text as `eos` and says nothing of the
/// end of a turn.
const END_OF_TURN: [&str; 6] =
    ["<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"];

/// Text to token ids and back.
#[derive(Debug)]
pub struct TextTokenizer {
    /// Splits control tokens off.
    markup: Tokenizer,
    /// Knows no control tokens.
    content: Tokenizer,
    /// Where the vocabulary wants a space before a text.
    text_starts: Option<TextStarts>,
    control: Vec<bool>,
    bos: Option<TokenId>,
    add_bos: bool,
    end_of_turn: Vec<TokenId>,
    digest: [u8; 32],
}

impl TextTokenizer {
    /// Builds the tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] for a kind of vocabulary that is neither
    /// byte-level BPE with a known pre-tokenizer nor SentencePiece's BPE.
    pub(crate) fn from_gguf(file: &GgufFile) -> Result<Self, EngineError> {
        let require = |key| file.strings(key).ok_or_else(|| file.missing(key));
        let tokens = require("tokenizer.ggml.tokens")?;
        let types = file.integers("tokenizer.ggml.token_type").unwrap_or_default();
        let pre = file.str("tokenizer.ggml.pre").unwrap_or("default");
        let is = |kind: u32, id: usize| types.get(id) == Some(&kind);

        let control: Vec<bool> = (0..tokens.len()).map(|id| is(CONTROL, id)).collect();

        let kind = file.str("tokenizer.ggml.model").unwrap_or("none");
        let (content, text_starts, digest) = match kind {
            "gpt2" => {
                let merges = require("tokenizer.ggml.merges")?;
                let digest = digest([&tokens, &merges, &[pre]], types.iter().copied());
                (byte_level_bpe(&tokens, &merges, pre)?, None, digest)
            }
            SENTENCE_PIECE => {
                let scores = file.floats("tokenizer.ggml.scores").unwrap_or_default();
                let content = sentence_piece(&tokens, &scores, &types)?;
                let starts = TextStarts::of(file, &tokens, &control);
                let spacing = if starts.is_some() { "spaced" } else { "" };
                let bits = scores.iter().map(|score| score.to_bits());
                let numbers = types.iter().copied().chain(bits);
                (content, starts, digest([&tokens, &[spacing], &[kind]], numbers))
            }
            other => {
                return Err(EngineError::Tokenizer(format!(
                    "unsupported vocabulary `{other}`; supported: gpt2 (byte-level BPE), \
                     {SENTENCE_PIECE} (SentencePiece's BPE)"
                )));
            }
        };
        let mut markup = content.clone();
        let added: Vec<AddedToken> = (0..tokens.len())
            .filter(|&id| control[id] || is(USER_DEFINED, id))
            .map(|id| AddedToken::from(tokens[id], control[id]).normalized(false))
            .collect();
        markup.add_special_tokens(added).map_err(tokenizer_error)?;

        let id_of = |key| file.u32(key).map(TokenId);
        let bos = id_of("tokenizer.ggml.bos_token_id");
        let named = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"].map(id_of);
        let usual = (0..tokens.len())
            .filter(|&id| control[id] && END_OF_TURN.contains(&tokens[id]))
            .map(|id| TokenId(id as u32));
        let end_of_turn = named.into_iter().flatten().chain(usual).collect();
        Ok(TextTokenizer {
            markup,
            content,
            text_starts,
            control,
            bos,
            // Where the key is absent, SentencePiece's models want it.
            add_bos: file.bool("tokenizer.ggml.add_bos_token").unwrap_or(kind == SENTENCE_PIECE),
            end_of_turn,
            digest,
        })
    }

    /// Encodes text that the chat template wrote; control tokens are recognised.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] when the library refuses the text.
    pub fn encode_markup(&self, text: &str) -> Result<Vec<TokenId>, EngineError> {
        match &self.text_starts {
            None => encode(&self.markup, text),
            Some(starts) => starts.encode(text, |text| self.encode_content(text)),
        }
    }

    /// Encodes text that a person, a skill or a tool wrote: no control token
    /// comes out of it.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] when the library refuses the text.
    pub fn encode_content(&self, text: &str) -> Result<Vec<TokenId>, EngineError> {
        encode(&self.content, text)
    }

    /// The bytes of a text that each token of [`encode_content`](Self::encode_content)
    /// stands for, in order.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] when the library refuses the text.
    pub fn content_offsets(&self, text: &str) -> Result<Vec<Range<usize>>, EngineError> {
        let encoding = self.content.encode(text, false).map_err(tokenizer_error)?;
        Ok(encoding.get_offsets().iter().map(|&(start, end)| start..end).collect())
    }

    /// The text of some tokens, control tokens included.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] for an id outside the vocabulary.
    pub fn decode(&self, tokens: &[TokenId]) -> Result<String, EngineError> {
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        self.markup.decode(&ids, false).map_err(tokenizer_error)
    }

    /// Turns tokens into text one by one.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, tokens: Vec::new(), printed: 0 }
    }

    /// Text of the token that begins a context, if the vocabulary has one.
    pub fn bos_text(&self) -> Option<String> {
        self.markup.id_to_token(self.bos?.0)
    }

    /// Text of the first end-of-turn token.
    pub fn eos_text(&self) -> Option<String> {
        self.markup.id_to_token(self.end_of_turn.first()?.0)
    }

    /// The token that every context must begin with, if the model wants one.
    pub fn required_bos(&self) -> Option<TokenId> {
        self.bos.filter(|_| self.add_bos)
    }

    /// Whether the model ends its turn with this token.
    pub fn is_end_of_turn(&self, token: TokenId) -> bool {
        self.end_of_turn.contains(&token)
    }

    /// Whether a token is a control token.
    pub fn is_control(&self, token: TokenId) -> bool {
        self.control.get(token.0 as usize).copied().unwrap_or(false)
    }

    /// BLAKE3 of vocabulary, merges or scores, and pre-tokenizer.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

fn byte_level_bpe(tokens: &[&str], merges: &[&str], pre: &str) -> Result<Tokenizer, EngineError> {
    let merges: Option<Vec<(String, String)>> = merges
        .iter()
        .map(|merge| merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect();
    let merges =
        merges.ok_or_else(|| EngineError::Tokenizer("a merge without two parts".into()))?;
    let vocabulary =
        tokens.iter().zip(0u32..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    let bpe = BPE::builder()
        .vocab_and_merges::<tokenizers::models::bpe::Vocab>(vocabulary, merges)
        // Llama 3's vocabulary has whole words that its merges cannot reach.
        .ignore_merges(matches!(pre, "llama-bpe" | "llama3"))
        .build()
        .map_err(tokenizer_error)?;
    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer(pre)?));
    tokenizer.with_normalizer(normalizer(pre)).map_err(tokenizer_error)?;
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<TokenId>, EngineError> {
    let encoding = tokenizer.encode_fast(text, false).map_err(tokenizer_error)?;
    Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
}

fn digest(texts: [&[&str]; 3], numbers: impl Iterator<Item = u32>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for texts in texts {
        hasher.update(&(texts.len() as u64).to_le_bytes());
        for text in texts {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function in `map_err`")]
pub(super) fn tokenizer_error(error: tokenizers::Error) -> EngineError {
    EngineError::Tokenizer(error.to_string())
}

/// Text of a growing list of tokens. A character whose bytes are spread over
/// several tokens comes out whole, with the last of them.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a TextTokenizer,
    /// Tokens of the current line of thought: those that may still decode
    /// differently together with the next one.
    tokens: Vec<TokenId>,
    /// Bytes of their text that have been handed out.
    printed: usize,
}

impl TextStream<'_> {
    /// Adds a token and returns the text that is now certain, maybe empty.
    /// Control tokens have no text.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] for an id outside the vocabulary.
    pub fn push(&mut self, token: TokenId) -> Result<String, EngineError> {
        if self.tokenizer.is_control(token) {
            return Ok(String::new());
        }
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens)?;
        // An unfinished character decodes to U+FFFD at the end.
        if text.ends_with('\u{FFFD}') {
            return Ok(String::new());
        }
        let fresh = text[self.printed..].to_owned();
        // Decoding of bytes does not depend on what came before, so a finished
        // text can be forgotten.
        self.tokens.clear();
        self.printed = 0;
        Ok(fresh)
    }

    /// The rest: bytes that never became a character, as U+FFFD.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] for an id outside the vocabulary.
    pub fn finish(self) -> Result<String, EngineError> {
        self.tokenizer.decode(&self.tokens)
    }
}
