//! Test data: the evaluation set, the requests, and folders outside the package.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use skillgraft_skills::{Catalog, Skill, parse, scan};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json_lines(name: &str) -> Vec<Value> {
    data(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The 12 skills of the evaluation set.
pub(crate) fn evaluation_skills() -> Vec<Skill> {
    let text = |skill: &Value, key: &str| skill[key].as_str().unwrap().to_owned();
    json_lines("skills.jsonl")
        .iter()
        .map(|s| Skill::in_memory(&text(s, "name"), &text(s, "description"), &text(s, "body")))
        .collect()
}

/// The 60 questions with one right skill: (question, skill).
pub(crate) fn single_questions() -> Vec<(String, String)> {
    json_lines("cases.jsonl")
        .iter()
        .filter(|case| case["kind"] == "single")
        .map(|case| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&case["question"]), text(&case["skills"][0]))
        })
        .collect()
}

/// The lines of one section `[name]` of `requests.txt`.
pub(crate) fn requests(section: &str) -> Vec<String> {
    let all = data("requests.txt");
    let header = format!("[{section}]");
    let lines = all.lines().skip_while(|line| *line != header).skip(1);
    let lines: Vec<String> = lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty(), "section {header} of requests.txt is empty");
    lines
}

/// The lines `skill: request` of one section of `requests.txt`, as (request, skill).
pub(crate) fn requests_for_skills(section: &str) -> Vec<(String, String)> {
    let split = |line: String| {
        let (skill, request) = line.split_once(": ").expect("a line is `skill: request`");
        (request.to_owned(), skill.to_owned())
    };
    requests(section).into_iter().map(split).collect()
}

/// The skills of `examples/skills`.
pub(crate) fn example_catalog() -> Catalog {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/skills");
    scan(&[folder]).unwrap()
}

/// The folder of test material outside the repository, when it is there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SKILLGRAFT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = root.join(name);
    folder.exists().then_some(folder)
}

/// 200 real skills: every fourth of the corpus, sorted by path, whose name no
/// evaluation skill has. `None` without the corpus.
pub(crate) fn corpus_skills() -> Option<Vec<Skill>> {
    let corpus = shared("corpus")?;
    let manifest = fs::read_to_string(corpus.join("MANIFEST.jsonl")).unwrap();
    let mut paths: Vec<PathBuf> = manifest
        .lines()
        .map(|line| {
            let entry: Value = serde_json::from_str(line).unwrap();
            let repository = entry["repo"].as_str().unwrap().replace('/', "__");
            corpus.join(repository).join(entry["path"].as_str().unwrap())
        })
        .collect();
    paths.sort();
    let mut ids: Vec<String> = evaluation_skills().into_iter().map(|skill| skill.id).collect();
    let mut skills = Vec::new();
    for path in paths.iter().step_by(4) {
        if let Ok(parsed) = parse(&fs::read(path).unwrap(), path)
            && !ids.contains(&parsed.skill.id)
        {
            ids.push(parsed.skill.id.clone());
            skills.push(parsed.skill);
        }
    }
    skills.truncate(200);
    assert_eq!(skills.len(), 200, "the corpus has enough skills");
    Some(skills)
}
