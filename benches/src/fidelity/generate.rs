//! Cases made from a user's own skills: a line of a skill, cut before a fact.
//!
//! A fact is a piece of code or a number that the skill has once; the case is to go
//! on with it where its line breaks off. Small models answer such a question where
//! they fail at free ones, and the only right answer is known.
//!
//! **Invariant:** equal skills give equal cases.

use skillgraft::skills::{UnitKind, units};

use super::evalset::{EvalCase, EvalSkill};

/// What the user said before the skill was loaded.
pub(super) const USER_PREFIX: &str = "I need some help with my work today. Please look up the right skill and answer my question \
     from it.";
/// Words before a fact: fewer say too little of what is asked.
const STUB_WORDS_MIN: usize = 3;
/// Bytes of a line that a question repeats.
const STUB_BYTES_MAX: usize = 160;
/// Bytes of a fact.
const FACT_BYTES: std::ops::RangeInclusive<usize> = 2..=40;

/// At most `n_max` cases of a skill, spread over its lines.
pub(super) fn cases_of(skill: &EvalSkill, n_max: usize) -> Vec<EvalCase> {
    let lines = units(&skill.body).into_iter().filter(|unit| unit.kind == UnitKind::Text);
    let facts: Vec<(u32, &str, &str)> = lines
        .filter_map(|unit| {
            let (stub, fact) = cut(unit.text)?;
            (skill.body.matches(fact).count() == 1).then_some((unit.line, stub, fact))
        })
        .collect();
    let n_cases = n_max.min(facts.len());
    let chosen = (0..n_cases).map(|at| facts[at * facts.len() / n_cases]);
    chosen
        .map(|(line, stub, fact)| EvalCase {
            id: format!("{}/line {}", skill.name, line + 1),
            kind: "single".to_owned(),
            skills: vec![skill.name.clone()],
            user_prefix: USER_PREFIX.to_owned(),
            question: format!("How does this line of the skill go on: \"{stub} ...\"?"),
            answer_stub: stub.to_owned(),
            answer: fact.to_owned(),
            edit_old: None,
            edit_new: None,
        })
        .collect()
}

/// Cuts a line before its last fact.
fn cut(line: &str) -> Option<(&str, &str)> {
    let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let line = item.strip_prefix(". ").or_else(|| item.strip_prefix(") ")).unwrap_or(line);
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`');
    let (start, fact) = code(line).or_else(|| number(line))?;
    let stub = line[..start].trim_end();
    let is_enough = stub.split_whitespace().count() >= STUB_WORDS_MIN;
    let fits = stub.len() <= STUB_BYTES_MAX && FACT_BYTES.contains(&fact.len());
    (is_enough && fits).then_some((stub, fact))
}

/// The last piece of code, and where it begins.
fn code(line: &str) -> Option<(usize, &str)> {
    let end = line.rfind('`')?;
    let start = line[..end].rfind('`')? + 1;
    let is_paired = line.matches('`').count().is_multiple_of(2);
    is_paired.then_some((start, &line[start..end]))
}

/// The last number with the word behind it, and where it begins.
fn number(line: &str) -> Option<(usize, &str)> {
    let mut starts = line.match_indices(' ').map(|(at, _)| at + 1);
    let start = starts.rfind(|&at| line[at..].starts_with(|c: char| c.is_ascii_digit()))?;
    let mut words = line[start..].split(' ');
    let first = words.next()?;
    let number = first.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
    let unit = words.next().unwrap_or("").trim_end_matches(|c: char| !c.is_alphabetic());
    let has_unit =
        number.len() == first.len() && !unit.is_empty() && unit.chars().all(char::is_alphabetic);
    let len = if has_unit { number.len() + 1 + unit.len() } else { number.len() };
    Some((start, &line[start..start + len]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_before_their_last_fact() {
        let cases = [
            ("- Wait at least 15 minutes.", Some(("Wait at least", "15 minutes"))),
            (
                "2. Sign the bundle with key `GW-2291`.",
                Some(("Sign the bundle with key `", "GW-2291")),
            ),
            ("The limit of a file is 38 MB, not more.", Some(("The limit of a file is", "38 MB"))),
            (
                "It is open at most (see below) 7/24.",
                Some(("It is open at most (see below)", "7/24")),
            ),
            ("Wait 15 minutes.", None),
            ("Nothing of that kind is in here.", None),
            ("Say `a lot of` things `", None),
        ];
        for (line, expected) in cases {
            assert_eq!(cut(line), expected, "{line}");
        }
    }

    #[test]
    fn a_fact_that_a_skill_has_twice_is_no_fact() {
        let skill = |body: &str| EvalSkill {
            name: "s".to_owned(),
            description: String::new(),
            body: body.to_owned(),
        };
        let text = "# Head\n\nPlease wait at least 15 minutes.\n\n- The port of it is 8080.\n";
        let cases = cases_of(&skill(text), 5);
        let found: Vec<_> =
            cases.iter().map(|case| (case.id.as_str(), case.answer.as_str())).collect();
        assert_eq!(found, [("s/line 3", "15 minutes"), ("s/line 5", "8080")]);
        assert_eq!(cases_of(&skill(text), 1).len(), 1);
        assert!(cases_of(&skill(&format!("{text}\n8080 and 15 minutes")), 5).is_empty());
    }
}
