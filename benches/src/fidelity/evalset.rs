//! Evaluation sets: skills, questions about them, and the only right answers.
//!
//! A set is a folder with `skills.jsonl`, `cases.jsonl` and `env.json`.
//!
//! **Invariant:** every case that is kept can be run: its skill is there, and its
//! gold answer is a text of the skill that follows the stub.
//!
//! It refuses a set that was made for another layout of the context than
//! [`Layout`](super::layout::Layout) builds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::layout::TEMPLATE;
use crate::error::Error;

/// Skills and questions about them.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalSet {
    /// The set's folder name, or `built-in`.
    pub name: String,
    /// The skills.
    pub skills: Vec<EvalSkill>,
    /// The cases with one skill each, in order.
    pub cases: Vec<EvalCase>,
    /// The system prompt.
    pub system: String,
    /// Names and descriptions in the static prefix, in order; more than there are
    /// skills.
    pub catalog: Vec<(String, String)>,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EvalSkill {
    /// Its name.
    pub name: String,
    /// What the catalog says about it.
    pub description: String,
    /// Its text.
    pub body: String,
}

/// A question about a skill.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EvalCase {
    /// Its name.
    pub id: String,
    /// `single`: one skill, one fact. Other kinds are not run.
    pub kind: String,
    /// The skills it needs.
    pub skills: Vec<String>,
    /// What the user said before the skill was loaded.
    pub user_prefix: String,
    /// The question.
    pub question: String,
    /// How the answer begins.
    pub answer_stub: String,
    /// What follows the stub.
    pub answer: String,
    /// Words of the skill that an edit replaces.
    #[serde(default)]
    pub edit_old: Option<String>,
    /// What it replaces them by.
    #[serde(default)]
    pub edit_new: Option<String>,
}

#[derive(Deserialize)]
struct Environment {
    system: String,
    catalog: serde_json::Map<String, serde_json::Value>,
    template: serde_json::Map<String, serde_json::Value>,
}

/// The three files of a set, as text with their names.
struct Files<'a> {
    name: &'a str,
    skills: (PathBuf, &'a str),
    cases: (PathBuf, &'a str),
    environment: (PathBuf, &'a str),
}

const SKILLS: &str = "skills.jsonl";
const CASES: &str = "cases.jsonl";
const ENVIRONMENT: &str = "env.json";

impl EvalSet {
    /// The set that comes with the program: twelve skills of 179 to 1102 tokens,
    /// five questions each.
    ///
    /// # Errors
    /// None that a user can cause.
    pub fn built_in() -> Result<Self, Error> {
        parse(&Files {
            name: "built-in",
            skills: (SKILLS.into(), include_str!("../../data/evalset/skills.jsonl")),
            cases: (CASES.into(), include_str!("../../data/evalset/cases.jsonl")),
            environment: (ENVIRONMENT.into(), include_str!("../../data/evalset/env.json")),
        })
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// [`Error::Io`] when a file is absent or not text, [`Error::EvalSet`] when one
    /// is not as it should be, [`Error::NoCases`].
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let read = |file: &str| {
            let path = folder.join(file);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok((path, text)),
                Err(source) => Err(Error::Io { action: "read", path, source }),
            }
        };
        let (skills, cases, environment) = (read(SKILLS)?, read(CASES)?, read(ENVIRONMENT)?);
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();
        parse(&Files {
            name: &name,
            skills: (skills.0, &skills.1),
            cases: (cases.0, &cases.1),
            environment: (environment.0, &environment.1),
        })
    }

    /// The skill of a case.
    ///
    /// # Panics
    /// When the case is of another set.
    pub fn skill_of(&self, case: &EvalCase) -> &EvalSkill {
        let skill = self.skills.iter().find(|skill| skill.name == case.skills[0]);
        skill.expect("the skill of a case is in its set")
    }
}

fn parse(files: &Files<'_>) -> Result<EvalSet, Error> {
    let (system, catalog) = environment(&files.environment)?;
    let (path, text) = &files.skills;
    let skills: Vec<EvalSkill> = lines(path, text)?.into_iter().map(|(_, skill)| skill).collect();
    let (path, text) = &files.cases;
    let mut ids = BTreeSet::new();
    let mut cases = Vec::new();
    for (line, case) in lines::<EvalCase>(path, text)? {
        if case.kind != "single" {
            continue;
        }
        check(&case, &skills)
            .and_then(|()| {
                let is_new = ids.insert(case.id.clone());
                if is_new { Ok(()) } else { Err(format!("a second case `{}`", case.id)) }
            })
            .map_err(|reason| Error::EvalSet { path: path.clone(), line, reason })?;
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(Error::NoCases { path: path.clone() });
    }
    Ok(EvalSet { name: files.name.to_owned(), skills, cases, system, catalog })
}

/// Whether a case can be run on these skills.
fn check(case: &EvalCase, skills: &[EvalSkill]) -> Result<(), String> {
    let [name] = &case.skills[..] else {
        return Err(format!("a `single` case with {} skills", case.skills.len()));
    };
    let skill = skills.iter().find(|skill| skill.name == *name);
    let skill = skill.ok_or_else(|| format!("no skill `{name}`"))?;
    if case.answer.trim().is_empty() {
        return Err("the answer is empty".to_owned());
    }
    if !skill.body.contains(&case.answer) {
        return Err(format!("the answer `{}` is not in the skill `{name}`", case.answer));
    }
    Ok(())
}

/// One value a line, with the line's number; empty lines are skipped.
fn lines<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<(usize, T)>, Error> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| match serde_json::from_str(line) {
            Ok(value) => Ok((number, value)),
            Err(error) => Err(Error::EvalSet {
                path: path.to_owned(),
                line: number,
                reason: error.to_string(),
            }),
        })
        .collect()
}

/// System prompt and catalog.
fn environment((path, text): &(PathBuf, &str)) -> Result<(String, Vec<(String, String)>), Error> {
    let bad = |line, reason| Error::EvalSet { path: path.clone(), line, reason };
    let environment: Environment =
        serde_json::from_str(text).map_err(|error| bad(error.line().max(1), error.to_string()))?;
    for (part, expected) in TEMPLATE {
        let found = environment.template.get(part).and_then(serde_json::Value::as_str);
        if found != Some(expected) {
            let found = found.unwrap_or("absent");
            let reason =
                format!("template part `{part}` is {found:?}, this program builds {expected:?}");
            return Err(bad(1, reason));
        }
    }
    let entries = environment.catalog.into_iter().map(|(name, description)| match description {
        serde_json::Value::String(description) => Ok((name, description)),
        _ => Err(bad(1, format!("the description of `{name}` is no text"))),
    });
    Ok((environment.system, entries.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
