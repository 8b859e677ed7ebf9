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

/// Where the question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Behind the skill.
    #[default]
    After,
    /// Before it, as in the middle of a turn: the model wishes for the skill because
    /// of the question.
    Before,
}

/// What a case's context is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// Where the question stands.
    pub order: Order,
    /// Skills at once, the right one among them.
    pub n_skills: usize,
    /// Tokens of other talk between the static prefix and the case.
    pub distance: usize,
    /// Tokens of the skill's text, about; `None` leaves it as it is.
    pub length: Option<usize>,
}

impl Default for Setting {
    fn default() -> Self {
        Setting { order: Order::After, n_skills: 1, distance: 0, length: None }
    }
}

/// One case as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaseTokens {
    /// Talk before, and the user turn, up to the model's wish for the skill.
    pub(super) turn: Vec<TokenId>,
    /// The role marker before the skills.
    pub(super) opening: Vec<TokenId>,
    /// The skills, in order.
    pub(super) skills: Vec<SkillTokens>,
    /// Which of them has the answer.
    pub(super) target: usize,
    /// Question and the beginning of the answer.
    pub(super) question: Vec<TokenId>,
    /// The gold answer.
    pub(super) answer: Vec<TokenId>,
    /// The question in words.
    pub(super) request: String,
}

/// A skill in a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SkillTokens {
    pub(super) name: String,
    /// The line that names it.
    pub(super) header: Vec<TokenId>,
    /// Its body.
    pub(super) block: Vec<TokenId>,
    /// What the body says.
    pub(super) body: String,
    /// Closing tag.
    pub(super) closing: Vec<TokenId>,
}

impl CaseTokens {
    /// The skill with the answer.
    pub(super) fn target(&self) -> &SkillTokens {
        &self.skills[self.target]
    }
}

/// What is talked about at a distance.
const TALK: [(&str, &str); 5] = [
    ("Good morning. Did you sleep well?", "I do not sleep, but I am ready to help you."),
    ("What is the capital of Portugal?", "The capital of Portugal is Lisbon."),
    ("Name three birds that swim.", "Ducks, penguins and cormorants swim well."),
    ("How do I keep bread fresh?", "Keep it in a paper bag, in a dry and dark place."),
    ("Thank you. I will come back to you with a question about my work.", "Please do."),
];

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
    pub(super) fn case(
        &self,
        case: &EvalCase,
        setting: &Setting,
    ) -> Result<CaseTokens, EngineError> {
        let chosen = self.skills(case, setting.n_skills);
        let target = chosen.iter().position(|skill| skill.name == case.skills[0]);
        let skills = chosen.iter().map(|skill| {
            let wanted = setting.length.filter(|_| skill.name == case.skills[0]);
            let body = match wanted {
                Some(n_tokens) => self.resize(skill, &case.answer, n_tokens)?,
                None => skill.body.clone(),
            };
            self.skill(&skill.name, body)
        });
        let (asked, question) = match setting.order {
            Order::After => (String::new(), format!("\nQuestion: {}\n", case.question)),
            Order::Before => (format!(" {}", case.question), String::new()),
        };
        let mut turn = self.talk(setting.distance)?;
        turn.extend(self.encode(&[
            Piece::Markup("<|im_start|>user\n"),
            Piece::Words(&format!("{}{asked}", case.user_prefix)),
            Piece::Markup("<|im_end|>\n<|im_start|>assistant\n"),
            Piece::Words(&format!("I will load the skill {}.", case.skills[0])),
            Piece::Markup("<|im_end|>\n"),
        ])?);
        Ok(CaseTokens {
            turn,
            opening: self.encode(&[Piece::Markup("<|im_start|>user\n")])?,
            skills: skills.collect::<Result<_, _>>()?,
            target: target.expect("the right skill is among those that were chosen"),
            question: self.encode(&[
                Piece::Words(&format!("{question}Answer from the skill, in one short sentence.")),
                Piece::Markup("<|im_end|>\n<|im_start|>assistant\n"),
                Piece::Words(&case.answer_stub),
            ])?,
            answer: self.encode(&[Piece::Words(&continuation(case))])?,
            request: case.question.clone(),
        })
    }

    /// A skill with this body.
    pub(super) fn skill(&self, name: &str, body: String) -> Result<SkillTokens, EngineError> {
        Ok(SkillTokens {
            name: name.to_owned(),
            header: self.words(&format!("<skill name=\"{name}\">\n"))?,
            block: self.words(&body)?,
            body,
            closing: self.words("</skill>\n")?,
        })
    }

    /// The right skill and the next ones of the set, in an order that changes from
    /// case to case.
    fn skills(&self, case: &EvalCase, n_skills: usize) -> Vec<&EvalSkill> {
        let all = &self.set.skills;
        let right = all.iter().position(|skill| skill.name == case.skills[0]);
        let right = right.expect("the skill of a case is in its set");
        let n_skills = n_skills.min(all.len());
        let place = case.id.bytes().map(usize::from).sum::<usize>() % n_skills;
        (0..n_skills).map(|at| &all[(right + all.len() + at - place) % all.len()]).collect()
    }

    /// Other talk of about so many tokens.
    fn talk(&self, n_tokens: usize) -> Result<Vec<TokenId>, EngineError> {
        let mut tokens = Vec::new();
        for (asked, answered) in TALK.iter().cycle() {
            if tokens.len() >= n_tokens {
                break;
            }
            tokens.extend(self.encode(&[
                Piece::Markup("<|im_start|>user\n"),
                Piece::Words(asked),
                Piece::Markup("<|im_end|>\n<|im_start|>assistant\n"),
                Piece::Words(answered),
                Piece::Markup("<|im_end|>\n"),
            ])?);
        }
        Ok(tokens)
    }

    /// A skill's text with about so many tokens: lines around the answer, or the
    /// text and those of other skills behind it.
    fn resize(
        &self,
        skill: &EvalSkill,
        answer: &str,
        n_tokens: usize,
    ) -> Result<String, EngineError> {
        let others = self.set.skills.iter().filter(|other| other.name != skill.name);
        let mut body = skill.body.clone();
        for other in others.cycle().take(64 * self.set.skills.len()) {
            if self.words(&body)?.len() >= n_tokens {
                break;
            }
            body.extend(["\n\n", &other.body]);
        }
        let lines: Vec<&str> = body.split_inclusive('\n').collect();
        let found = body.find(answer).map_or(0, |at| body[..at].matches('\n').count());
        let (mut from, mut to) = (found, found + 1);
        let mut left = n_tokens.saturating_sub(self.words(lines[found])?.len());
        loop {
            let next = if to < lines.len() { Some(to) } else { from.checked_sub(1) };
            let Some(next) = next else { break };
            let n_line = self.words(lines[next])?.len();
            if n_line > left {
                break;
            }
            left -= n_line;
            if next == to { to += 1 } else { from = next }
        }
        Ok(lines[from..to].concat())
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
