//! Text to words that can be compared: lower case, endings off.
//!
//! **Invariant:** a request and a skill go through the same function.
//!
//! The lists and endings are English. Words of other languages are compared as
//! they are written.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Words of grammar and courtesy: they say nothing about the topic.
const STOP: &str = "a about after again all also am an and any are as at be because been before \
    being between both but by can could did do does doing done during each either else ever every \
    for from get gets give gives go goes going gone got had has have having he hello her here hi \
    him his how however i if im in into is it its just let lets like made make makes making may me \
    mean meaning means might mine more most much must my need needs neither no nor not now of off \
    ok okay on once one only or other our out over own per please quite rather same say shall she \
    should since so some still such take tell than thank thanks that the their them then there \
    these they this those though through to today tomorrow too under until up upon us use used \
    uses using very via want wants was way we well were what when where whether which while who \
    whom whose why will with within without would yes yet you your yours";

/// Words that fit a request about anything. They count little, and a match of
/// such words alone is no evidence.
const WEAK: &str = "answer ask bad best better big change day different difference easy end \
    example explain fast few find first five four give good great happen help high hour idea info \
    information keep kind know large last left list little long look low many minute month name \
    new next nice night number often old people person place point problem question quick read \
    right second see short show side simple simply small sort start stop story suggest sure thing \
    think three time top try turn two type understand week word work world write year yesterday";

/// Longest word kept, in characters: longer ones are data, not language.
const WORD_CHARS_MAX: usize = 40;

/// Endings that may go, each with the letters that must be left to tell the word
/// from others; the first that fits goes.
const ENDINGS: [(&str, usize); 8] =
    [("ation", 4), ("ment", 4), ("ing", 3), ("ed", 3), ("er", 4), ("ion", 4), ("ly", 4), ("al", 4)];

static STOP_WORDS: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| STOP.split_whitespace().collect());
static WEAK_STEMS: LazyLock<HashSet<String>> =
    LazyLock::new(|| WEAK.split_whitespace().map(stem).collect());

/// The lower-case words of a text, without stop words.
#[cfg(test)]
pub(super) fn words(text: &str) -> Vec<String> {
    all_words(text).into_iter().filter(|word| !is_stop(word)).collect()
}

/// The lower-case words of a text, stop words included. `isn't` is one word
/// without its ending; `pool.max` and `svc_siphon` are two words each.
pub(super) fn all_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    Splitter::default().each(text, |word| words.push(word.to_owned()));
    words
}

/// Splits texts into words; keeps room for one word in lower case.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    lower: String,
}

impl Splitter {
    /// Calls `take` with each lower-case word of a text, as [`all_words`] gives them.
    pub(super) fn each(&mut self, text: &str, mut take: impl FnMut(&str)) {
        for word in text.split(|c: char| !c.is_alphanumeric() && !is_apostrophe(c)) {
            let Some(word) = word.split(is_apostrophe).find(|part| !part.is_empty()) else {
                continue;
            };
            let is_lower = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            let word = if is_lower {
                word
            } else {
                self.lower.clear();
                self.lower.extend(word.chars().flat_map(char::to_lowercase));
                &self.lower
            };
            if word.len() <= WORD_CHARS_MAX || word.chars().count() <= WORD_CHARS_MAX {
                take(word);
            }
        }
    }
}

fn is_apostrophe(c: char) -> bool {
    c == '\'' || c == '\u{2019}'
}

/// Whether a lower-case word is dropped: a stop word, or a single letter.
pub(super) fn is_stop(word: &str) -> bool {
    let mut chars = word.chars();
    let single = chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.next().is_none();
    single || STOP_WORDS.contains(word)
}

/// Whether a stem fits any request: a weak word or a bare number.
pub(super) fn is_weak(stem: &str) -> bool {
    stem.bytes().all(|byte| byte.is_ascii_digit()) || WEAK_STEMS.contains(stem)
}

/// A lower-case English word without its ending. Two forms of one word should
/// meet; that the result is a word is not needed. Words with digits or letters
/// outside ASCII are names and stay as they are.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 4 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = singular(word);
    for (ending, left_min) in ENDINGS {
        if let Some(left) = stem.strip_suffix(ending)
            && left.len() >= left_min
        {
            stem = left.to_owned();
            undouble(&mut stem);
            break;
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    if stem.len() > 3 && stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

fn singular(word: &str) -> String {
    if let Some(left) = word.strip_suffix("ies")
        && word.len() > 4
    {
        return format!("{left}y");
    }
    for ending in ["sses", "xes", "ches", "shes", "zes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    match word.strip_suffix('s') {
        Some(left) if !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") => {
            left.to_owned()
        }
        _ => word.to_owned(),
    }
}

/// `stopp` is `stop`; `fill`, `pass` and `buzz` stay.
fn undouble(stem: &mut String) {
    let bytes = stem.as_bytes();
    if let [.., a, b] = bytes
        && a == b
        && stem.len() > 3
        && !matches!(b, b'l' | b's' | b'z')
    {
        stem.pop();
    }
}

#[cfg(test)]
mod tests;
