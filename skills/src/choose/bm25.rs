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

use super::index::{Index, SearchText, SkillWords, UnitWords, WordId};
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
        Bm25Chooser { catalog: catalog.clone(), index, text, evidence_min }
    }

    /// All skills that have a word of the request, best first. Those below the
    /// threshold are among them, behind those above it.
    pub fn rank(&self, request: &str) -> Vec<Match> {
        let query = Query::new(&self.index, terms(request));
        let bm25 = self.index.bm25(&query.strong_words());
        let mut matches: Vec<Match> = (self.index.skills.iter().enumerate())
            .filter_map(|(at, skill)| query.match_skill(SkillIdx(at), skill, bm25[at]))
            .collect();
        let fits = |found: &Match| found.evidence >= self.evidence_min;
        matches.sort_by(|a, b| {
            let order = fits(b).cmp(&fits(a)).then(b.score.total_cmp(&a.score));
            order.then(a.skill.cmp(&b.skill))
        });
        matches
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
    /// The best skill when its evidence suffices. Given another snapshot than
    /// the one indexed, that one is indexed for this call.
    fn choose(&self, request: &str, catalog: &Catalog) -> Result<Choice, Error> {
        if !catalog.is_same(&self.catalog) {
            return Self::with(catalog, self.text, self.evidence_min).choose(request, catalog);
        }
        let matches = self.rank(request);
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
    fn strong_words(&self) -> String {
        let strong = self.terms.iter().filter(|term| term.is_strong());
        // A compound's parts are words of many other things: only the whole counts.
        let whole = |term: &QueryTerm| {
            let mut words = vec![term.term.word.clone()];
            let joined = term.term.spellings.iter().skip(1).filter(|stems| stems.len() == 1);
            words.extend(joined.map(|stems| stems[0].clone()));
            words
        };
        let mut words: Vec<String> = strong.flat_map(whole).collect();
        words.sort();
        words.dedup();
        words.join(" ")
    }

    /// What one skill has of the request; `None` without a strong word.
    fn match_skill(&self, skill: SkillIdx, words: &SkillWords, bm25: f32) -> Option<Match> {
        let hits: Vec<&QueryTerm> =
            self.terms.iter().filter(|term| term.is_in(|id| words.all.contains(&id))).collect();
        if !hits.iter().any(|term| term.is_strong()) {
            return None;
        }
        let base: Vec<f32> = hits.iter().map(|term| base_weight(term, words)).collect();
        let mut best: Option<(f32, &UnitWords)> = None;
        for unit in &words.units {
            let evidence = unit_evidence(&hits, &base, unit, words);
            if evidence > best.map_or(0.0, |(evidence, _)| evidence) {
                best = Some((evidence, unit));
            }
        }
        let (evidence, unit) = best?;
        let evidence = evidence / self.mass;
        Some(Match {
            skill,
            score: evidence + BM25_SHARE * bm25 / self.mass,
            evidence,
            line: (unit.line > 0).then_some(unit.line),
            heading: unit.title.clone(),
            words: (hits.iter())
                .filter(|term| term.is_in(|id| unit.words.binary_search(&id).is_ok()))
                .map(|term| term.term.word.clone())
                .collect(),
        })
    }
}

fn weigh(index: &Index, term: Term) -> QueryTerm {
    let known = |stems: &Vec<String>| stems.iter().map(|stem| index.id(stem)).collect();
    let spellings: Vec<Vec<WordId>> = term.spellings.iter().filter_map(known).collect();
    let mut term = QueryTerm { term, spellings, weight: 0.0 };
    let n_with =
        index.skills.iter().filter(|skill| term.is_in(|id| skill.all.contains(&id))).count() as f32;
    let n_skills = index.skills.len() as f32 + SUPPOSED_SKILLS;
    let idf = (1.0 + (n_skills - n_with + 0.5) / (n_with + 0.5)).ln();
    term.weight = if term.is_strong() { idf } else { idf * WEAK_SHARE };
    term
}

/// What a term counts for a line that does not have it.
fn base_weight(term: &QueryTerm, words: &SkillWords) -> f32 {
    if term.is_in(|id| words.name.contains(&id)) {
        IN_NAME
    } else if term.is_in(|id| words.units[0].words.binary_search(&id).is_ok()) {
        IN_DESCRIPTION
    } else {
        IN_BODY
    }
}

/// Weight of the request that one line covers; 0 for a line without any strong
/// word of it.
fn unit_evidence(hits: &[&QueryTerm], base: &[f32], unit: &UnitWords, words: &SkillWords) -> f32 {
    let in_unit = |id| unit.words.binary_search(&id).is_ok();
    let heading = unit.heading.map(|at| &words.units[at]);
    let in_heading = |id| heading.is_some_and(|above| above.words.binary_search(&id).is_ok());
    let mut covered = 0.0;
    let mut n_in_unit: u32 = 0;
    let mut n_meeting: u32 = 0;
    for (term, &base) in hits.iter().zip(base) {
        let (share, meets) = if term.is_in(in_unit) {
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
