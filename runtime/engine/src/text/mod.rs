//! Text to tokens and back: tokenizer and chat template.

mod pre_tokenizer;
mod sentence_piece;
mod template;
mod tokenizer;

pub use template::{ChatTemplate, Frame, Message, Role};
pub use tokenizer::{TextStream, TextTokenizer};
