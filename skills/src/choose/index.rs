//! The words of all skills, ready to be searched.
//!
//! **Invariant:** built from one catalog and never changed. A word has one
//! number; a unit is the sorted numbers of its words.

use std::collections::{BTreeSet, HashMap};

use bm25::{Embedder, EmbedderBuilder, Scorer, Tokenizer};

use super::words::{stem, words};
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
const NAME_WEIGHT: usize = 2;

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
    pub(super) name: BTreeSet<WordId>,
    pub(super) all: BTreeSet<WordId>,
    /// Name and description first, then the lines of the body.
    pub(super) units: Vec<UnitWords>,
}

/// Splits text for the BM25 library.
#[derive(Debug)]
struct Stems;

impl Tokenizer for Stems {
    fn tokenize(&self, text: &str) -> Vec<String> {
        words(text).iter().map(|word| stem(word)).collect()
    }
}

/// The words of all skills of a catalog, in its order.
pub(super) struct Index {
    ids: HashMap<String, WordId>,
    pub(super) skills: Vec<SkillWords>,
    embedder: Embedder<u64, Stems>,
    scorer: Scorer<usize, u64>,
}

impl Index {
    pub(super) fn build(catalog: &Catalog, text: SearchText) -> Self {
        let documents: Vec<String> =
            catalog.skills().iter().map(|skill| document(skill, text)).collect();
        let corpus: Vec<&str> = documents.iter().map(String::as_str).collect();
        let embedder =
            EmbedderBuilder::<u64, Stems>::with_tokenizer_and_fit_to_corpus(Stems, &corpus).build();
        let mut scorer = Scorer::new();
        for (at, document) in documents.iter().enumerate() {
            scorer.upsert(&at, embedder.embed(document));
        }
        let mut index = Index { ids: HashMap::new(), skills: Vec::new(), embedder, scorer };
        for skill in catalog.skills() {
            let words = index.skill(skill, text);
            index.skills.push(words);
        }
        index
    }

    fn skill(&mut self, skill: &Skill, text: SearchText) -> SkillWords {
        let name = self.intern(&skill.name);
        let both = self.intern(&format!("{} {}", skill.name, skill.description));
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
                words: self.intern(unit.text),
                line: skill.body_line + unit.line,
                // The first unit of the list is not of the body.
                heading: unit.heading.map(|at| at + 1),
                title: heading.map(str::to_owned),
            });
        }
        let all = unit_words.iter().flat_map(|unit| &unit.words).copied().collect();
        SkillWords { name: name.into_iter().collect(), all, units: unit_words }
    }

    /// The sorted numbers of the words of a text; new words get new numbers.
    fn intern(&mut self, text: &str) -> Vec<WordId> {
        let mut found = BTreeSet::new();
        for word in words(text) {
            let next = self.ids.len() as WordId;
            found.insert(*self.ids.entry(stem(&word)).or_insert(next));
        }
        found.into_iter().collect()
    }

    /// The number of a stem that some skill has.
    pub(super) fn id(&self, stem: &str) -> Option<WordId> {
        self.ids.get(stem).copied()
    }

    /// BM25 of every skill for the given words, in the order of the catalog.
    pub(super) fn bm25(&self, query: &str) -> Vec<f32> {
        let query = self.embedder.embed(query);
        (0..self.skills.len()).map(|at| self.scorer.score(&at, &query).unwrap_or(0.0)).collect()
    }
}

fn document(skill: &Skill, text: SearchText) -> String {
    let mut document = format!("{}\n", skill.name).repeat(NAME_WEIGHT);
    document.push_str(&skill.description);
    if text == SearchText::Full {
        document.push('\n');
        document.push_str(&skill.body);
    }
    document
}
