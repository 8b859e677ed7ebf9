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
use skillgraft::skills::scan;

use super::generate::{USER_PREFIX, cases_of};
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
    #[serde(default = "single")]
    pub kind: String,
    /// The skills it needs.
    pub skills: Vec<String>,
    /// What the user said before the skill was loaded.
    #[serde(default = "user_prefix")]
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

fn single() -> String {
    "single".to_owned()
}

fn user_prefix() -> String {
    USER_PREFIX.to_owned()
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

    /// Cases made from the skills of a folder, at most `per_skill` of each.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the folder cannot be read, [`Error::NoFacts`] when its
    /// skills give no case.
    pub fn of_skills(folder: &Path, per_skill: usize) -> Result<Self, Error> {
        let mut set = EvalSet { cases: Vec::new(), ..Self::skills_of(folder)? };
        set.cases = set.skills.iter().flat_map(|skill| cases_of(skill, per_skill)).collect();
        if set.cases.is_empty() {
            return Err(Error::NoFacts { folder: folder.to_owned(), n_skills: set.skills.len() });
        }
        Ok(set)
    }

    /// The user's own cases on the skills of a folder, or of the built-in set.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::EvalSet`] with file and line, [`Error::NoCases`].
    pub fn of_cases(folder: Option<&Path>, cases: &Path) -> Result<Self, Error> {
        let set = folder.map_or_else(Self::built_in, Self::skills_of)?;
        let text = std::fs::read_to_string(cases).map_err(|source| Error::Io {
            action: "read",
            path: cases.to_owned(),
            source,
        })?;
        let name = cases.file_name().unwrap_or(cases.as_os_str()).to_string_lossy().into_owned();
        let cases = single_cases(cases, &text, &set.skills)?;
        Ok(EvalSet { name, cases, ..set })
    }

    /// The skills of a folder, without cases.
    fn skills_of(folder: &Path) -> Result<Self, Error> {
        let catalog = scan(&[folder.to_owned()]).map_err(skillgraft::Error::from)?;
        let skills: Vec<EvalSkill> = catalog
            .skills()
            .iter()
            .map(|skill| EvalSkill {
                name: skill.id.clone(),
                description: skill.one_line_description(),
                body: skill.body.clone(),
            })
            .collect();
        let built_in = Self::built_in()?;
        let catalog = skills.iter().map(|s| (s.name.clone(), s.description.clone())).collect();
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        Ok(EvalSet { name, skills, cases: Vec::new(), system: built_in.system, catalog })
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
    let cases = single_cases(path, text, &skills)?;
    Ok(EvalSet { name: files.name.to_owned(), skills, cases, system, catalog })
}

/// The cases with one skill each.
fn single_cases(path: &Path, text: &str, skills: &[EvalSkill]) -> Result<Vec<EvalCase>, Error> {
    let mut ids = BTreeSet::new();
    let mut cases = Vec::new();
    for (line, case) in lines::<EvalCase>(path, text)? {
        if case.kind != "single" {
            continue;
        }
        check(&case, skills)
            .and_then(|()| {
                let is_new = ids.insert(case.id.clone());
                if is_new { Ok(()) } else { Err(format!("a second case `{}`", case.id)) }
            })
            .map_err(|reason| Error::EvalSet { path: path.to_owned(), line, reason })?;
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(Error::NoCases { path: path.to_owned() });
    }
    Ok(cases)
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
