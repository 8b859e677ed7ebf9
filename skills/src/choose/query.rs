//! A request as terms that can be looked up.
//!
//! **Invariant:** a term is one word of the request, once, with every spelling
//! under which a skill may have it: `roll back` is also found as `rollback`, and
//! `rollback` as `roll back`.

use super::words::{all_words, is_stop, is_weak, stem};

/// Shortest part of a compound, in letters.
const PART_CHARS_MIN: usize = 3;

/// Whether a term says something about the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// It does.
    Strong,
    /// It fits a request about anything.
    Weak,
}

/// One word of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    /// As the user wrote it, in lower case.
    pub(super) word: String,
    /// Whether it says something about the topic.
    pub(super) strength: Strength,
    /// Spellings; each is a list of stems that must all be there.
    pub(super) spellings: Vec<Vec<String>>,
}

/// The terms of a request, in order of their first mention.
pub(super) fn terms(request: &str) -> Vec<Term> {
    let words = all_words(request);
    let mut terms: Vec<Term> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let own = stem(word);
        if is_stop(word) || terms.iter().any(|term| term.spellings[0][0] == own) {
            continue;
        }
        let strength = if is_weak(&own) { Strength::Weak } else { Strength::Strong };
        let mut spellings = vec![vec![own]];
        let neighbours = [
            at.checked_sub(1).map(|before| (before, at)),
            (at + 1 < words.len()).then_some((at, at + 1)),
        ];
        for (first, second) in neighbours.into_iter().flatten() {
            spellings.push(vec![stem(&format!("{}{}", words[first], words[second]))]);
        }
        spellings.extend(parts(word));
        terms.push(Term { word: word.clone(), strength, spellings });
    }
    terms
}

/// The ways to read a word as a compound of two.
fn parts(word: &str) -> Vec<Vec<String>> {
    if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Vec::new();
    }
    (PART_CHARS_MIN..=word.len().saturating_sub(PART_CHARS_MIN))
        .map(|at| word.split_at(at))
        .filter(|(first, second)| !is_stop(first) && !is_stop(second))
        .map(|(first, second)| vec![stem(first), stem(second)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(terms: &'a [Term], word: &str) -> &'a Term {
        terms.iter().find(|term| term.word == word).expect("the word is a term")
    }

    #[test]
    fn compounds_are_spelled_both_ways() {
        let terms = terms("Roll back the deploys; a rollback");
        let roll = find(&terms, "roll");
        assert!(roll.spellings.contains(&vec!["rollback".to_owned()]));
        assert!(find(&terms, "back").spellings.contains(&vec!["rollback".to_owned()]));
        let rollback = find(&terms, "rollback");
        assert!(rollback.spellings.contains(&vec!["roll".to_owned(), "back".to_owned()]));
    }

    #[test]
    fn a_word_is_one_term_however_often_it_comes() {
        let words: Vec<String> =
            terms("deploy deployed DEPLOYS the 42 write").into_iter().map(|t| t.word).collect();
        assert_eq!(words, ["deploy", "42", "write"]);
        let terms = terms("deploy 42 write");
        let strengths: Vec<Strength> = terms.iter().map(|term| term.strength).collect();
        assert_eq!(strengths, [Strength::Strong, Strength::Weak, Strength::Weak]);
    }
}
