//! The token ids of the workloads.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skillgraft::Prompts;
use skillgraft_engine::BlockSource;
use skillgraft_kv::{AnchorKind, TokenId};

use crate::error::Error;
use crate::subject::Subject;

/// Seed of the generated text.
const SEED: u64 = 7;
/// Tokens of text to have at hand: the longest workloads take some thousands.
const TEXT_TOKENS: usize = 10_000;
/// A question of a usual length, which any document of procedures might answer.
const QUESTION: &str = "\nWhich step has to be done first, and what must be checked before it? Answer in one sentence.";

/// The pieces of the workloads, as token ids.
pub(crate) struct Texts {
    /// The static prefix: system prompt and catalog.
    pub(crate) prefix: Vec<TokenId>,
    /// What stands between the prefix and the block: role marker and skill name.
    pub(crate) opening: Vec<TokenId>,
    /// What the block is compiled behind.
    pub(crate) anchor: Vec<TokenId>,
    /// What the block ends with.
    pub(crate) closing: Vec<TokenId>,
    /// Question, and the marker that makes the model answer.
    pub(crate) message: Vec<TokenId>,
    /// Text of skills.
    text: Vec<TokenId>,
}

impl Texts {
    pub(crate) fn new(subject: &Subject) -> Result<Self, Error> {
        let tokenizer = subject.model.tokenizer();
        let prompts = Prompts::new(&subject.model);
        let system = Prompts::system_message(&subject.catalog.render());
        let header = tokenizer.encode_content("<skill name=\"workload\">\n")?;
        let anchor = prompts.neutral_anchor(&header)?;
        let history = [system];
        let mut opening = prompts.open_message(&history)?;
        opening.extend_from_slice(&header);

        let markdown = if subject.own_skills { text_of(subject) } else { generate(SEED) };
        let mut text = tokenizer.encode_content(&markdown)?;
        let once = text.clone();
        while text.len() < TEXT_TOKENS {
            text.extend_from_slice(&once);
        }
        Ok(Texts {
            prefix: prompts.prefix(&history[0])?,
            opening,
            anchor,
            closing: tokenizer.encode_content("\n</skill>\n")?,
            message: prompts.close_message(&history, QUESTION)?,
            text,
        })
    }

    /// Tokens of a turn that are prefilled in every mode.
    pub(crate) fn live_tokens(&self) -> usize {
        self.opening.len() + self.message.len()
    }

    /// The first tokens of the text.
    pub(crate) fn first(&self, n_tokens: usize) -> Vec<TokenId> {
        self.text.iter().copied().cycle().take(n_tokens).collect()
    }

    /// A block of exactly `n_tokens`: text and its closing tag.
    pub(crate) fn block(&self, n_tokens: usize) -> Vec<TokenId> {
        let mut tokens = self.first(n_tokens - self.closing.len());
        tokens.extend_from_slice(&self.closing);
        tokens
    }

    /// The block of some tokens behind the neutral anchor.
    pub(crate) fn source<'a>(&'a self, tokens: &'a [TokenId]) -> BlockSource<'a> {
        BlockSource {
            label: "workload",
            anchor: AnchorKind::Neutral,
            anchor_tokens: &self.anchor,
            tokens,
            salt: [0; 16],
        }
    }
}

fn text_of(subject: &Subject) -> String {
    let bodies: Vec<&str> =
        subject.catalog.skills().iter().map(|skill| skill.body.as_str()).collect();
    bodies.join("\n\n")
}

const SUBJECTS: [&str; 8] =
    ["gateway", "ledger", "worker", "index", "mirror", "scheduler", "archive", "sensor"];
const TASKS: [&str; 8] =
    ["restart", "inspect", "drain", "replace", "verify", "compact", "publish", "freeze"];
const PLACES: [&str; 6] = ["staging", "production", "the lab", "region north", "the depot", "edge"];
const PEOPLE: [&str; 6] =
    ["the owner", "the on-call person", "a reviewer", "finance", "support", "the lead"];

/// Markdown such as skills are written in: headings, steps with commands,
/// conditions and numbers. Equal seeds give equal texts.
fn generate(seed: u64) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // A section has some 110 tokens.
    let sections = (1..=TEXT_TOKENS / 100).map(|number| section(number, &mut random));
    format!("# Operations handbook\n{}", sections.collect::<String>())
}

fn section(number: usize, random: &mut ChaCha8Rng) -> String {
    let mut pick = |words: &[&'static str]| words[random.random_range(0..words.len())];
    let (subject, task, place) = (pick(&SUBJECTS), pick(&TASKS), pick(&PLACES));
    let (person, other) = (pick(&PEOPLE), pick(&SUBJECTS));
    let (minutes, port) = (random.random_range(3..90), random.random_range(1024..9999));
    let limit = random.random_range(2..40);
    format!(
        "\n## {number}. How to {task} the {subject} in {place}\n\n\
         Use this when the {subject} has been behind for more than {minutes} minutes. \
         Tell {person} before you begin.\n\n\
         1. Run `opsctl {task} --unit {subject}-{number} --port {port}`.\n\
         2. Wait until the {other} reports fewer than {limit} open jobs.\n\
         3. Write the result into the log of {place}, with the number of the ticket.\n\n\
         If step 2 takes longer than {minutes} minutes, stop and ask {person}; \
         never {task} the {other} at the same time.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_texts() {
        assert_eq!(generate(3), generate(3));
        assert_ne!(generate(3), generate(4));
    }

    #[test]
    fn the_text_is_long_and_does_not_repeat_itself() {
        let text = generate(SEED);
        // A token has fewer than six characters of such a text.
        assert!(text.len() > TEXT_TOKENS * 3, "{} bytes", text.len());
        let mut headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        let n_headings = headings.len();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), n_headings);
    }
}
