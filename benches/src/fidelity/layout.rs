//! The context of a case, piece by piece, as token ids.
//!
//! Prefix (system prompt and catalog), a user turn that ends with the model
//! asking for the skill, then the skill's header, its body (the block), its closing
//! tag, the question, and the beginning of the answer.
//!
//! **Invariant:** pieces are encoded on their own, so that a full prefill and a
//! graft see the same ids. Only what the layout itself writes may hold control
//! tokens.

use skillgraft_engine::{EngineError, TextTokenizer};
use skillgraft_kv::TokenId;

use super::evalset::{EvalCase, EvalSet, EvalSkill};

/// The layout in the words of an evaluation set's `env.json`, for comparison with
/// what a set was made for.
pub(super) const TEMPLATE: [(&str, &str); 7] = [
    (
        "prefix",
        "<|im_start|>system\n{system}\n\nAvailable skills:\n{- name: description\\n ...}<|im_end|>\n",
    ),
    (
        "user",
        "<|im_start|>user\n{user_prefix}<|im_end|>\n<|im_start|>assistant\n\
         I will load the skill {name}.<|im_end|>\n",
    ),
    ("block_head", "<|im_start|>user\n<skill name=\"{name}\">\n"),
    ("block", "{body}"),
    ("block_tail", "</skill>\n"),
    (
        "question",
        "\nQuestion: {question}\nAnswer from the skill, in one short sentence.<|im_end|>\n\
         <|im_start|>assistant\n{answer_stub}",
    ),
    ("answer", " {answer} (no space if the stub ends in ` / # or //)"),
];

/// Encodes the pieces of contexts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout<'a> {
    tokenizer: &'a TextTokenizer,
    set: &'a EvalSet,
}

/// One case as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaseTokens {
    /// The user turn, up to the model's wish for the skill.
    pub(super) turn: Vec<TokenId>,
    /// The role marker before the skill.
    pub(super) opening: Vec<TokenId>,
    /// The line that names the skill.
    pub(super) header: Vec<TokenId>,
    /// The skill's body.
    pub(super) block: Vec<TokenId>,
    /// Closing tag.
    pub(super) closing: Vec<TokenId>,
    /// Question and the beginning of the answer.
    pub(super) question: Vec<TokenId>,
    /// The gold answer.
    pub(super) answer: Vec<TokenId>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(tokenizer: &'a TextTokenizer, set: &'a EvalSet) -> Self {
        Layout { tokenizer, set }
    }

    /// The static prefix.
    pub(super) fn prefix(&self) -> Result<Vec<TokenId>, EngineError> {
        let entries = self.set.catalog.iter();
        let entries = entries.map(|(name, description)| format!("- {name}: {description}"));
        let entries: Vec<String> = entries.collect();
        let system = format!("{}\n\nAvailable skills:\n{}\n", self.set.system, entries.join("\n"));
        self.encode(&[
            Piece::Markup("<|im_start|>system\n"),
            Piece::Words(&system),
            Piece::Markup("<|im_end|>\n"),
        ])
    }

    /// A case.
    pub(super) fn case(&self, case: &EvalCase) -> Result<CaseTokens, EngineError> {
        let EvalSkill { name, body, .. } = self.set.skill_of(case);
        Ok(CaseTokens {
            turn: self.encode(&[
                Piece::Markup("<|im_start|>user\n"),
                Piece::Words(&case.user_prefix),
                Piece::Markup("<|im_end|>\n<|im_start|>assistant\n"),
                Piece::Words(&format!("I will load the skill {name}.")),
                Piece::Markup("<|im_end|>\n"),
            ])?,
            opening: self.encode(&[Piece::Markup("<|im_start|>user\n")])?,
            header: self.encode(&[Piece::Words(&format!("<skill name=\"{name}\">\n"))])?,
            block: self.encode(&[Piece::Words(body)])?,
            closing: self.encode(&[Piece::Words("</skill>\n")])?,
            question: self.encode(&[
                Piece::Words(&format!(
                    "\nQuestion: {}\nAnswer from the skill, in one short sentence.",
                    case.question
                )),
                Piece::Markup("<|im_end|>\n<|im_start|>assistant\n"),
                Piece::Words(&case.answer_stub),
            ])?,
            answer: self.encode(&[Piece::Words(&continuation(case))])?,
        })
    }

    /// Text of a skill or a person.
    pub(super) fn words(&self, text: &str) -> Result<Vec<TokenId>, EngineError> {
        self.encode(&[Piece::Words(text)])
    }

    /// Text of the layout itself.
    pub(super) fn markup(&self, text: &str) -> Result<Vec<TokenId>, EngineError> {
        self.encode(&[Piece::Markup(text)])
    }

    fn encode(&self, pieces: &[Piece<'_>]) -> Result<Vec<TokenId>, EngineError> {
        let mut tokens = Vec::new();
        for piece in pieces {
            tokens.extend(match piece {
                Piece::Markup(text) => self.tokenizer.encode_markup(text)?,
                Piece::Words(text) => self.tokenizer.encode_content(text)?,
            });
        }
        Ok(tokens)
    }
}

enum Piece<'a> {
    /// Control tokens are recognised.
    Markup(&'a str),
    /// No control token comes out of it.
    Words(&'a str),
}

/// The gold answer as it follows the stub.
fn continuation(case: &EvalCase) -> String {
    let glued = case.answer_stub.ends_with(['`', '/', '#']);
    if glued { case.answer.clone() } else { format!(" {}", case.answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_their_stub() {
        let case = |stub: &str| EvalCase {
            id: "a".to_owned(),
            kind: "single".to_owned(),
            skills: vec!["s".to_owned()],
            user_prefix: String::new(),
            question: String::new(),
            answer_stub: stub.to_owned(),
            answer: "7714".to_owned(),
            edit_old: None,
            edit_new: None,
        };
        for (stub, expected) in [
            ("Join at extension", " 7714"),
            ("Run `", "7714"),
            ("Post in #", "7714"),
            ("See https://", "7714"),
        ] {
            assert_eq!(continuation(&case(stub)), expected, "{stub}");
        }
    }
}
