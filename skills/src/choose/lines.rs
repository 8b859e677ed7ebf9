//! The lines of one text that a request is about.
//!
//! **Invariant:** the answer depends on the request and the text only, and units
//! do not overlap.
//!
//! A unit is a line of a list or of a table, a sentence of a longer line of prose, or
//! a short code block as a whole, since the lines of a command belong together. Units are ranked by BM25
//! (Robertson and Zaragoza 2009) over the words of the unit and, for less, of the
//! heading above it and of its table's head, which is no unit itself: the facts
//! are in the rows.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

use super::query::{Strength, Term, terms};
use super::words::{all_words, stem};
use crate::{Unit, UnitKind, units};

/// How soon more of the same word adds nothing (BM25).
const SATURATION: f32 = 1.2;
/// How much a long unit is held against its words (BM25).
const LENGTH_SHARE: f32 = 0.5;
/// What a word counts that only the heading above has.
const IN_HEADING: f32 = 0.4;
/// What a weak word counts against a strong one.
const WEAK_SHARE: f32 = 0.3;
/// Lines of a code block that is one unit, the opening fence with its language
/// included; longer ones are taken line by line.
const CODE_LINES_MAX: usize = 7;

/// Lines of prose up to this many bytes are not taken apart.
const LINE_BYTES: usize = 120;

/// A unit of a text that has words of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedLine {
    /// Where it is in the text, the line end included.
    pub bytes: Range<usize>,
    /// How well it fits, comparable within one ranking only; above 0.
    pub score: f32,
}

/// The lines of `text` that have a word of `request`, best first.
pub fn rank_lines(text: &str, request: &str) -> Vec<RankedLine> {
    let passages = passages(text);
    let n_words: usize = passages.iter().map(|passage| passage.words.len()).sum();
    let mean_len = n_words as f32 / passages.len().max(1) as f32;
    let mut scores = vec![0.0; passages.len()];
    for term in terms(request) {
        let counts: Vec<f32> = passages.iter().map(|passage| passage.count(&term)).collect();
        let n_with = counts.iter().filter(|&&count| count > 0.0).count() as f32;
        let mut idf = (1.0 + (passages.len() as f32 - n_with + 0.5) / (n_with + 0.5)).ln();
        if term.strength == Strength::Weak {
            idf *= WEAK_SHARE;
        }
        for ((score, passage), count) in scores.iter_mut().zip(&passages).zip(counts) {
            let length = 1.0 - LENGTH_SHARE + LENGTH_SHARE * passage.words.len() as f32 / mean_len;
            *score += idf * count * (SATURATION + 1.0) / (count + SATURATION * length);
        }
    }
    let ranked = passages.into_iter().zip(scores).filter(|(_, score)| *score > 0.0);
    let mut ranked: Vec<RankedLine> =
        ranked.map(|(passage, score)| RankedLine { bytes: passage.bytes, score }).collect();
    ranked.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| a.bytes.start.cmp(&b.bytes.start))
    });
    ranked
}

/// A unit with its words.
struct Passage {
    bytes: Range<usize>,
    /// Stems, repetitions included.
    words: Vec<String>,
    /// Stems of the heading above, and of the table's head.
    heading: Vec<String>,
}

impl Passage {
    /// How often it has a term, in the spelling that it has most often.
    fn count(&self, term: &Term) -> f32 {
        let counts = term.spellings.iter().map(|spelling| {
            let count = |stem| self.words.iter().filter(|word| *word == stem).count();
            let least = spelling.iter().map(count).min().unwrap_or(0);
            match least {
                0 if spelling.iter().all(|stem| self.heading.contains(stem)) => IN_HEADING,
                least => least as f32,
            }
        });
        counts.fold(0.0, f32::max)
    }
}

fn passages(text: &str) -> Vec<Passage> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut starts = vec![0];
    starts.extend(lines.iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    let stems = |text: &str| all_words(text).iter().map(|word| stem(word)).collect::<Vec<_>>();
    let units = units(text);
    let mut passages = Vec::new();
    let mut columns = Vec::new();
    let mut at = 0;
    while at < units.len() {
        let unit = &units[at];
        let line = unit.line as usize;
        let is_row = unit.kind == UnitKind::Text && unit.text.starts_with('|');
        if is_row && lines.get(line + 1).is_some_and(|next| is_separator(next)) {
            columns = stems(unit.text);
            at += 1;
            continue;
        }
        if !is_row {
            columns.clear();
        }
        let n_units = if unit.kind == UnitKind::Code { code_units(&units[at..]) } else { 1 };
        let mut heading = unit.heading.map(|above| stems(units[above].text)).unwrap_or_default();
        heading.extend_from_slice(&columns);
        let bytes = starts[line]..starts[units[at + n_units - 1].line as usize + 1];
        let parts = if unit.kind == UnitKind::Text && !is_row && bytes.len() > LINE_BYTES {
            sentences(text, bytes)
        } else {
            vec![bytes]
        };
        passages.extend(parts.into_iter().map(|bytes| Passage {
            words: stems(&text[bytes.clone()]),
            heading: heading.clone(),
            bytes,
        }));
        at += n_units;
    }
    passages
}

/// The sentences of a line (UAX 29).
fn sentences(text: &str, line: Range<usize>) -> Vec<Range<usize>> {
    let bounds = text[line.clone()].split_sentence_bound_indices();
    bounds.map(|(at, part)| line.start + at..line.start + at + part.len()).collect()
}

/// Whether a line stands between the head of a table and its rows.
fn is_separator(line: &str) -> bool {
    line.contains("--") && line.trim().chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

/// How many units of code from the first one on are taken together.
fn code_units(units: &[Unit<'_>]) -> usize {
    let block = units.iter().zip(units[0].line..);
    let n_lines =
        block.take_while(|(unit, line)| unit.kind == UnitKind::Code && unit.line == *line).count();
    if n_lines <= CODE_LINES_MAX { n_lines } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Deploy\n\nAsk the lead before a rollback.\n\n## Limits\n\n\
        | pool | size |\n|---|---|\n| staging | 12 |\n| production | 40 |\n\n\
        ```sh\n# undo the last one\nsiphon undo --stage staging\nsiphon status\n```\n\nWait 90 seconds.";

    fn best(request: &str) -> Vec<&'static str> {
        rank_lines(TEXT, request).into_iter().map(|line| &TEXT[line.bytes]).collect()
    }

    #[test]
    fn the_line_with_the_words_comes_first() {
        assert_eq!(best("Who must I ask to roll back?")[0], "Ask the lead before a rollback.\n");
        assert_eq!(best("pool size of production")[0], "| production | 40 |\n");
        assert_eq!(best("how many seconds")[0], "Wait 90 seconds.");
    }

    #[test]
    fn a_short_code_block_is_one_unit_and_headings_count_for_their_lines() {
        let block = best("undo by siphon")[0];
        assert!(
            block.starts_with("```sh\n# undo") && block.ends_with("siphon status\n"),
            "{block}"
        );
        let limits = best("limits of production");
        assert_eq!(limits[0], "| production | 40 |\n");
        assert!(limits.contains(&"## Limits\n"), "{limits:?}");
    }

    #[test]
    fn long_lines_are_taken_apart_into_sentences() {
        let text = "Start the writers again with `svc resume`. Watch the lag, which must drop below \
            12 seconds within half an hour. If it does not, call the lead.\nShort. Line.\n";
        let best = |request: &str| text[rank_lines(text, request)[0].bytes.clone()].to_owned();
        assert_eq!(best("call whom"), "If it does not, call the lead.\n");
        assert_eq!(best("how long must I watch the lag")[..13], *"Watch the lag");
        assert_eq!(best("short"), "Short. Line.\n");
    }

    #[test]
    fn no_word_no_line() {
        assert_eq!(best("unrelated question"), Vec::<&str>::new());
        assert_eq!(rank_lines("", "undo"), []);
        assert_eq!(rank_lines("---\n\n***\n", "undo"), []);
    }
}
