//! The default chooser: BM25 over the full text, and a test whether the best
//! skill answers at all.
//!
//! **Invariant:** the answer depends on the request and the catalog only.
//!
//! Two numbers decide. *Evidence* says whether a skill fits: the share of what
//! the request says that one line of the skill says too, where each word weighs
//! as much as it is rare (idf). A word that is not in the line counts less when
//! it is in the skill's name, description, heading or elsewhere in the body;
//! a word that no skill has counts in full against it. Several words that meet
//! in one line are worth more than the same words apart. Being a share, evidence
//! does not depend on the size of the catalog as a raw score would. *Rank* orders
//! the skills that fit: evidence plus the skill's BM25 score.
//!
//! **Refuses:** to pick a skill on words that fit any request.

use super::index::{Index, SearchText, SkillWords, WordId};
use super::query::{Strength, Term, terms};
use super::{Choice, ChooseSkill, Pick};
use crate::{Catalog, Error, SkillIdx};

/// Evidence below which no skill is chosen: a skill must cover half of what the
/// request says. One of two rare words is less than half, whatever the size of
/// the catalog. On the evaluation set the least evidence for a right skill is
/// 0.73; for 60 general questions the most is 0.50, the next 0.43.
pub const DEFAULT_EVIDENCE_MIN: f32 = 0.5;

/// Weight of a word that is not in the line but in the skill's name.
const IN_NAME: f32 = 1.0;
/// Weight of a word that is not in the line but in the description.
const IN_DESCRIPTION: f32 = 0.75;
/// Weight of a word that is not in the line but in the heading above it.
const IN_HEADING: f32 = 0.5;
/// Weight of a word that is elsewhere in the body.
const IN_BODY: f32 = 0.25;
/// What a weak word counts against a strong one.
const WEAK_SHARE: f32 = 0.3;
/// Gain for each further strong word that meets the first in one line, or is in
/// the name of the skill that has the line.
const MEETING_GAIN: f32 = 0.25;
/// BM25's share of the rank.
const BM25_SHARE: f32 = 0.4;
/// Skills without any of the words that idf supposes beside the real ones: in a
/// catalog of one skill, a word of that skill must still weigh something.
const SUPPOSED_SKILLS: f32 = 30.0;

/// How one skill answers a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// Which skill.
    pub skill: SkillIdx,
    /// Order among the matches of one request.
    pub score: f32,
    /// Share of the request that the best line covers; above 1 when several
    /// words meet there.
    pub evidence: f32,
    /// Line of the skill's file, counted from 1; `None` when name and
    /// description match best.
    pub line: Option<u32>,
    /// The heading of that line.
    pub heading: Option<String>,
    /// The request's words that the line has, as the user wrote them.
    pub words: Vec<String>,
}

/// Chooses by full-text search.
pub struct Bm25Chooser {
    catalog: Catalog,
    index: Index,
    text: SearchText,
    evidence_min: f32,
    /// Skills that only the user may activate: found, and never chosen.
    n_hidden: usize,
}

impl Bm25Chooser {
    /// Indexes the full text of a catalog.
    pub fn new(catalog: &Catalog) -> Self {
        Self::with(catalog, SearchText::Full, DEFAULT_EVIDENCE_MIN)
    }

    /// Indexes a catalog; `evidence_min` is the evidence below which the answer
    /// is none.
    pub fn with(catalog: &Catalog, text: SearchText, evidence_min: f32) -> Self {
        let index = Index::build(catalog, text);
        let n_hidden = catalog.skills().iter().filter(|skill| !skill.invocable.by_model).count();
        Bm25Chooser { catalog: catalog.clone(), index, text, evidence_min, n_hidden }
    }

    /// All skills that have a word of the request, best first. Those below the
    /// threshold are among them, behind those above it.
    pub fn rank(&self, request: &str) -> Vec<Match> {
        self.search(request, usize::MAX)
    }

    /// The best skills of [`Bm25Chooser::rank`], at most `n_max`.
    pub fn search(&self, request: &str, n_max: usize) -> Vec<Match> {
        let query = Query::new(&self.index, terms(request));
        let mut scored = query.score(&self.index);
        let fits = |found: &Scored| found.evidence >= self.evidence_min;
        let order = |a: &Scored, b: &Scored| {
            let order = fits(b).cmp(&fits(a)).then(b.score.total_cmp(&a.score));
            order.then(a.skill.cmp(&b.skill))
        };
        if n_max < scored.len() {
            if n_max > 0 {
                scored.select_nth_unstable_by(n_max - 1, order);
            }
            scored.truncate(n_max);
        }
        scored.sort_by(order);
        scored.iter().map(|found| query.matched(&self.index, found)).collect()
    }

    fn pick(&self, best: &Match, next: Option<&Match>) -> Pick {
        let place = match (&best.heading, best.line) {
            (Some(heading), Some(line)) => format!("in \"{heading}\" line {line}"),
            (None, Some(line)) => format!("in line {line}"),
            (_, None) => "in name and description".to_owned(),
        };
        let next = next.map_or_else(String::new, |next| {
            format!("; next best `{}` at {:.2}", self.catalog.get(next.skill).id, next.score)
        });
        let words = quoted(&best.words);
        let reason = format!("matches {words} {place} at {:.2}{next}", best.score);
        let id = self.catalog.get(best.skill).id.clone();
        Pick { skill: best.skill, id, score: best.score, reason }
    }

    fn none(&self, request: &str, best: Option<&Match>) -> Choice {
        let reason = match best {
            _ if terms(request).iter().all(|term| term.strength == Strength::Weak) => {
                "the request has no word that could tell skills apart".to_owned()
            }
            None => "no skill has a word of the request".to_owned(),
            Some(best) => format!(
                "no skill covers the request: best `{}` with {} at {:.2} of {:.2} needed",
                self.catalog.get(best.skill).id,
                quoted(&best.words),
                best.evidence,
                self.evidence_min,
            ),
        };
        Choice::None { reason }
    }
}

impl ChooseSkill for Bm25Chooser {
    /// The best skill when its evidence suffices, of those that the model may
    /// activate. Given another snapshot than
    /// the one indexed, that one is indexed for this call.
    fn choose(&self, request: &str, catalog: &Catalog) -> Result<Choice, Error> {
        if !catalog.is_same(&self.catalog) {
            return Self::with(catalog, self.text, self.evidence_min).choose(request, catalog);
        }
        // The second is named beside the first.
        let mut matches = self.search(request, 2 + self.n_hidden);
        matches.retain(|found| catalog.get(found.skill).invocable.by_model);
        Ok(match matches.first() {
            Some(best) if best.evidence >= self.evidence_min => {
                Choice::Picks(vec![self.pick(best, matches.get(1))])
            }
            best => self.none(request, best),
        })
    }
}

fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// A term with its numbers in one index.
struct QueryTerm {
    term: Term,
    /// Spellings that this index can have, as numbers of their words.
    spellings: Vec<Vec<WordId>>,
    /// Skills that have some spelling, in their order.
    skills: Vec<u32>,
    /// Inverse document frequency, lowered for weak words.
    weight: f32,
}

impl QueryTerm {
    /// Whether `has` holds for a whole spelling of the term.
    fn is_in(&self, has: impl Fn(WordId) -> bool) -> bool {
        self.spellings.iter().any(|spelling| spelling.iter().all(|&id| has(id)))
    }

    fn is_strong(&self) -> bool {
        self.term.strength == Strength::Strong
    }
}

/// A skill that has a strong word of a request.
#[derive(Debug, Clone, Copy)]
struct Scored {
    skill: u32,
    /// The best line, as an index of the skill's units.
    unit: u32,
    evidence: f32,
    score: f32,
}

/// A request, looked up in one index.
struct Query {
    terms: Vec<QueryTerm>,
    /// Weight of all terms.
    mass: f32,
}

impl Query {
    fn new(index: &Index, terms: Vec<Term>) -> Self {
        let terms: Vec<QueryTerm> = terms.into_iter().map(|term| weigh(index, term)).collect();
        let mass = terms.iter().map(|term| term.weight).sum();
        Query { terms, mass }
    }

    /// The strong words in all their spellings, for BM25.
    fn strong_words(&self, index: &Index) -> Vec<WordId> {
        let strong = self.terms.iter().filter(|term| term.is_strong());
        // A compound's parts are words of many other things: only the whole counts.
        let whole = strong.flat_map(|term| {
            let joined = term.term.spellings.iter().skip(1).filter(|stems| stems.len() == 1);
            term.term.spellings.first().into_iter().chain(joined)
        });
        let mut words: Vec<WordId> = whole.filter_map(|stems| index.id(&stems[0])).collect();
        words.sort_unstable();
        words.dedup();
        words
    }

    /// All skills that have a strong word, in the order of the catalog.
    fn score(&self, index: &Index) -> Vec<Scored> {
        let bm25 = index.bm25(&self.strong_words(index));
        let is_asked = self.asked(index);
        let mut hits: Vec<Hit<'_>> = Vec::new();
        let mut scored = Vec::new();
        let by_skill = self.by_skill(index.skills.len());
        for (skill, terms) in by_skill.iter() {
            let words = &index.skills[skill];
            let terms = terms.iter().map(|&term| &self.terms[term as usize]);
            if !terms.clone().any(QueryTerm::is_strong) {
                continue;
            }
            hits.clear();
            hits.extend(terms.map(|term| Hit::new(term, words)));
            let mut best = (0.0, None);
            for (at, unit) in words.units.iter().enumerate() {
                // Most lines have no word of the request.
                if !unit.words.iter().any(|&word| is_asked[word as usize]) {
                    continue;
                }
                let evidence = unit_evidence(&hits, at, words);
                if evidence > best.0 {
                    best = (evidence, Some(at as u32));
                }
            }
            if let (evidence, Some(unit)) = best {
                let evidence = evidence / self.mass;
                let score = evidence + BM25_SHARE * bm25[skill] / self.mass;
                scored.push(Scored { skill: skill as u32, unit, evidence, score });
            }
        }
        scored
    }

    /// For every word of the index whether it is in some spelling of a strong term.
    fn asked(&self, index: &Index) -> Vec<bool> {
        let mut is_asked = vec![false; index.n_words()];
        for term in self.terms.iter().filter(|term| term.is_strong()) {
            for &word in term.spellings.iter().flatten() {
                is_asked[word as usize] = true;
            }
        }
        is_asked
    }

    /// For each skill the terms that it has, as indices.
    fn by_skill(&self, n_skills: usize) -> BySkill {
        let mut ends = vec![0_u32; n_skills + 1];
        for &skill in self.terms.iter().flat_map(|term| &term.skills) {
            ends[skill as usize + 1] += 1;
        }
        for at in 0..n_skills {
            ends[at + 1] += ends[at];
        }
        let mut next = ends.clone();
        let mut terms = vec![0_u32; ends[n_skills] as usize];
        for (at, term) in self.terms.iter().enumerate() {
            for &skill in &term.skills {
                let place = &mut next[skill as usize];
                terms[*place as usize] = at as u32;
                *place += 1;
            }
        }
        BySkill { ends, terms }
    }

    /// A scored skill in words.
    fn matched(&self, index: &Index, found: &Scored) -> Match {
        let unit = &index.skills[found.skill as usize].units[found.unit as usize];
        Match {
            skill: SkillIdx(found.skill as usize),
            score: found.score,
            evidence: found.evidence,
            line: (unit.line > 0).then_some(unit.line),
            heading: unit.title.clone(),
            words: (self.terms.iter())
                .filter(|term| term.is_in(|id| unit.words.binary_search(&id).is_ok()))
                .map(|term| term.term.word.clone())
                .collect(),
        }
    }
}

fn weigh(index: &Index, term: Term) -> QueryTerm {
    let known = |stems: &Vec<String>| stems.iter().map(|stem| index.id(stem)).collect();
    let spellings: Vec<Vec<WordId>> = term.spellings.iter().filter_map(known).collect();
    let skills = with_any(index, &spellings);
    let n_with = skills.len() as f32;
    let n_skills = index.skills.len() as f32 + SUPPOSED_SKILLS;
    let idf = (1.0 + (n_skills - n_with + 0.5) / (n_with + 0.5)).ln();
    let weight = if term.strength == Strength::Strong { idf } else { idf * WEAK_SHARE };
    QueryTerm { term, spellings, skills, weight }
}

/// The skills that have all words of some spelling, in their order.
fn with_any(index: &Index, spellings: &[Vec<WordId>]) -> Vec<u32> {
    let mut skills = Vec::new();
    for spelling in spellings {
        let Some((first, others)) = spelling.split_first() else { continue };
        let having = index.postings(*first).iter().map(|posting| posting.skill);
        skills.extend(having.filter(|&skill| others.iter().all(|&word| index.has(skill, word))));
    }
    if spellings.len() > 1 {
        skills.sort_unstable();
        skills.dedup();
    }
    skills
}

/// Terms by skill, in one piece of memory.
struct BySkill {
    /// Where the terms of each skill start; one more than there are skills.
    ends: Vec<u32>,
    terms: Vec<u32>,
}

impl BySkill {
    /// The skills that have any term, in order.
    fn iter(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let bounds = self.ends.windows(2).enumerate();
        let parts = bounds.map(|(at, bound)| (at, bound[0] as usize..bound[1] as usize));
        parts.filter(|(_, part)| !part.is_empty()).map(|(at, part)| (at, &self.terms[part]))
    }
}

/// A term that a skill has.
struct Hit<'q> {
    term: &'q QueryTerm,
    /// What it counts for a line that does not have it.
    base: f32,
    /// Whether name and description have it.
    is_in_first: bool,
}

impl<'q> Hit<'q> {
    fn new(term: &'q QueryTerm, words: &SkillWords) -> Self {
        let is_in = |words: &[WordId]| term.is_in(|id| words.binary_search(&id).is_ok());
        let is_in_first = is_in(&words.units[0].words);
        let base = match is_in_first {
            // Words of the name are among those of the first unit.
            true if is_in(&words.name) => IN_NAME,
            true => IN_DESCRIPTION,
            false => IN_BODY,
        };
        Hit { term, base, is_in_first }
    }
}

/// Weight of the request that one line covers; 0 for a line without any strong
/// word of it.
fn unit_evidence(hits: &[Hit<'_>], at: usize, words: &SkillWords) -> f32 {
    let unit = &words.units[at];
    let in_unit = |id| unit.words.binary_search(&id).is_ok();
    let heading = unit.heading.map(|at| &words.units[at]);
    let in_heading = |id| heading.is_some_and(|above| above.words.binary_search(&id).is_ok());
    let mut covered = 0.0;
    let mut n_in_unit: u32 = 0;
    let mut n_meeting: u32 = 0;
    for &Hit { term, base, is_in_first } in hits {
        let is_in_unit = if at == 0 { is_in_first } else { term.is_in(in_unit) };
        let (share, meets) = if is_in_unit {
            n_in_unit += u32::from(term.is_strong());
            (1.0, true)
        } else if term.is_in(in_heading) {
            (base.max(IN_HEADING), base == IN_NAME)
        } else {
            (base, base == IN_NAME)
        };
        n_meeting += u32::from(meets && term.is_strong());
        covered += share * term.weight;
    }
    if n_in_unit == 0 {
        return 0.0;
    }
    covered * (1.0 + MEETING_GAIN * (n_meeting - 1) as f32)
}
