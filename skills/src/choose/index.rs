//! The words of all skills, ready to be searched.
//!
//! **Invariant:** built from one catalog and never changed. A word has one
//! number; a unit is the sorted numbers of its words. Each text is split into
//! words once.

use std::collections::HashMap;

use super::words::{Splitter, is_stop, stem};
use crate::{Catalog, Skill, UnitKind, units};

/// How much of a skill is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SearchText {
    /// Name, description and body.
    Full,
    /// Name and description, as a model sees them: for comparison.
    Description,
}

/// The name says best what a skill is about: it counts as often in BM25.
const NAME_WEIGHT: u32 = 2;
/// How soon more of the same word adds nothing (BM25).
const SATURATION: f32 = 1.2;
/// How much a long skill is held against its words (BM25).
const LENGTH_SHARE: f32 = 0.75;

pub(super) type WordId = u32;

/// The words of one line.
#[derive(Debug)]
pub(super) struct UnitWords {
    /// Sorted, without repetition.
    pub(super) words: Vec<WordId>,
    /// Line of the skill's file, counted from 1; 0 for name and description.
    pub(super) line: u32,
    /// The heading above it, as an index of the skill's units.
    pub(super) heading: Option<usize>,
    /// The heading's text where the unit stands under one or is one.
    pub(super) title: Option<String>,
}

/// The words of one skill.
#[derive(Debug)]
pub(super) struct SkillWords {
    /// Sorted, without repetition.
    pub(super) name: Vec<WordId>,
    /// Name and description first, then the lines of the body.
    pub(super) units: Vec<UnitWords>,
    /// Words, repetitions included.
    n_words: u32,
}

/// A skill that has a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    /// Its place in the catalog.
    pub(super) skill: u32,
    /// How often it has the word.
    count: u32,
}

/// The words of all skills of a catalog, in its order.
pub(super) struct Index {
    ids: HashMap<String, WordId>,
    pub(super) skills: Vec<SkillWords>,
    /// For every word the skills that have it, in their order.
    postings: Vec<Vec<Posting>>,
    /// Words of a skill on average.
    n_words_mean: f32,
}

impl Index {
    pub(super) fn build(catalog: &Catalog, text: SearchText) -> Self {
        let mut builder = Builder::default();
        let skills: Vec<SkillWords> =
            catalog.skills().iter().map(|skill| builder.skill(skill, text)).collect();
        let n_words: u64 = skills.iter().map(|skill| u64::from(skill.n_words)).sum();
        let n_words_mean = n_words as f32 / skills.len().max(1) as f32;
        Index { ids: builder.ids, skills, postings: builder.postings, n_words_mean }
    }

    /// Number of different words.
    pub(super) fn n_words(&self) -> usize {
        self.postings.len()
    }

    /// The number of a stem that some skill has.
    pub(super) fn id(&self, stem: &str) -> Option<WordId> {
        self.ids.get(stem).copied()
    }

    /// The skills that have a word, in their order.
    pub(super) fn postings(&self, word: WordId) -> &[Posting] {
        &self.postings[word as usize]
    }

    /// Whether a skill has a word.
    pub(super) fn has(&self, skill: u32, word: WordId) -> bool {
        self.postings(word).binary_search_by_key(&skill, |posting| posting.skill).is_ok()
    }

    /// BM25 of every skill for the given words, in the order of the catalog.
    pub(super) fn bm25(&self, words: &[WordId]) -> Vec<f32> {
        let mut scores = vec![0.0; self.skills.len()];
        for &word in words {
            let postings = self.postings(word);
            let (n_skills, n_with) = (self.skills.len() as f32, postings.len() as f32);
            let idf = (1.0 + (n_skills - n_with + 0.5) / (n_with + 0.5)).ln();
            for &Posting { skill, count } in postings {
                let n_words = self.skills[skill as usize].n_words as f32;
                let length = 1.0 - LENGTH_SHARE + LENGTH_SHARE * n_words / self.n_words_mean;
                let count = count as f32;
                scores[skill as usize] +=
                    idf * count * (SATURATION + 1.0) / (count + SATURATION * length);
            }
        }
        scores
    }
}

/// Gives numbers to words while skills are read one after the other.
#[derive(Default)]
struct Builder {
    ids: HashMap<String, WordId>,
    /// Numbers of words as they are written in lower case, so that a word is
    /// stemmed once; `None` for one that is not kept.
    seen: HashMap<String, Option<WordId>>,
    postings: Vec<Vec<Posting>>,
    splitter: Splitter,
    n_skills: u32,
}

impl Builder {
    fn skill(&mut self, skill: &Skill, text: SearchText) -> SkillWords {
        let at = self.n_skills;
        let mut n_words = 0;
        let name = self.text(&skill.name, at, NAME_WEIGHT, &mut n_words);
        let mut both = self.text(&skill.description, at, 1, &mut n_words);
        both.extend_from_slice(&name);
        sort(&mut both);
        let mut unit_words = vec![UnitWords { words: both, line: 0, heading: None, title: None }];
        let body = match text {
            SearchText::Full => units(&skill.body),
            SearchText::Description => Vec::new(),
        };
        for unit in &body {
            let heading = match unit.kind {
                UnitKind::Heading => Some(unit.text),
                UnitKind::Text | UnitKind::Code => unit.heading.map(|at| body[at].text),
            };
            unit_words.push(UnitWords {
                words: self.text(unit.text, at, 1, &mut n_words),
                line: skill.body_line + unit.line,
                // The first unit of the list is not of the body.
                heading: unit.heading.map(|at| at + 1),
                title: heading.map(str::to_owned),
            });
        }
        self.n_skills += 1;
        SkillWords { name, units: unit_words, n_words }
    }

    /// The sorted numbers of the words of a text, which are counted for a skill;
    /// new words get new numbers.
    fn text(&mut self, text: &str, skill: u32, weight: u32, n_words: &mut u32) -> Vec<WordId> {
        let Builder { ids, seen, postings, splitter, .. } = self;
        let mut found = Vec::new();
        splitter.each(text, |word| {
            let known = seen.get(word).copied();
            let id = known.unwrap_or_else(|| {
                let id = (!is_stop(word)).then(|| {
                    let next = ids.len() as WordId;
                    *ids.entry(stem(word)).or_insert(next)
                });
                seen.insert(word.to_owned(), id);
                id
            });
            let Some(id) = id else { return };
            found.push(id);
            *n_words += weight;
            if postings.len() <= id as usize {
                postings.resize_with(id as usize + 1, Vec::new);
            }
            match postings[id as usize].last_mut() {
                Some(last) if last.skill == skill => last.count += weight,
                _ => postings[id as usize].push(Posting { skill, count: weight }),
            }
        });
        sort(&mut found);
        found
    }
}

fn sort(words: &mut Vec<WordId>) {
    words.sort_unstable();
    words.dedup();
}

#[cfg(test)]
mod tests {
    use bm25::{EmbedderBuilder, Scorer, Tokenizer};
    use proptest::prelude::*;

    use super::super::words::words;
    use super::*;

    #[derive(Debug)]
    struct Stems;

    impl Tokenizer for Stems {
        fn tokenize(&self, text: &str) -> Vec<String> {
            words(text).iter().map(|word| stem(word)).collect()
        }
    }

    /// The same by a library, text by text.
    fn oracle(catalog: &Catalog, query: &str) -> Vec<f32> {
        let documents: Vec<String> = (catalog.skills().iter())
            .map(|s| format!("{}\n{}\n{}\n{}", s.name, s.name, s.description, s.body))
            .collect();
        let corpus: Vec<&str> = documents.iter().map(String::as_str).collect();
        let embedder =
            EmbedderBuilder::<u64, Stems>::with_tokenizer_and_fit_to_corpus(Stems, &corpus).build();
        let mut scorer = Scorer::new();
        for (at, document) in documents.iter().enumerate() {
            scorer.upsert(&at, embedder.embed(document));
        }
        let query = embedder.embed(query);
        (0..documents.len()).map(|at| scorer.score(&at, &query).unwrap_or(0.0)).collect()
    }

    proptest! {
        #[test]
        fn scores_are_those_of_a_library(
            texts in proptest::collection::vec("[a-h]{2,3}( [a-h]{2,3}){0,12}", 1..9),
            query in proptest::collection::btree_set("[a-h]{2}", 1..4),
        ) {
            let skill = |(n, text): (usize, &String)| {
                Skill::in_memory(&format!("n{n}"), text, &format!("# ab\n{text}\n\n- cd ef\n"))
            };
            let catalog = Catalog::from_skills(texts.iter().enumerate().map(skill).collect());
            let index = Index::build(&catalog, SearchText::Full);
            let mut ids: Vec<WordId> =
                query.iter().flat_map(|word| words(word)).filter_map(|w| index.id(&stem(&w))).collect();
            sort(&mut ids);
            let known: Vec<&str> = (query.iter().map(String::as_str))
                .filter(|word| words(word).iter().all(|w| index.id(&stem(w)).is_some()))
                .collect();
            let (got, expected) = (index.bm25(&ids), oracle(&catalog, &known.join(" ")));
            for (got, expected) in got.iter().zip(&expected) {
                prop_assert!((got - expected).abs() < 1e-4, "{:?} {:?}", got, expected);
            }
        }
    }
}
