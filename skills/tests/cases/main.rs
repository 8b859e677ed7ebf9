//! The format and its use, held against cases rebuilt from reported defects.
//!
//! A case says which files there are, what is done, and what must come of it;
//! where it lists other outcomes, each of them is right. The cases are read from
//! the file that the environment variable `SKILL_CASES` names, and otherwise from
//! `tests/data/skill_cases.jsonl`. No case is treated apart: a case that cannot be
//! understood fails.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these are tests: they may panic, and they print what they measure"
)]

mod expect;
mod one_file;
mod steps;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use world::World;

/// What is wrong with an outcome; nothing for a right one.
type Faults = Vec<String>;

fn cases_file() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/skill_cases.jsonl");
    std::env::var_os("SKILL_CASES").map_or(own, PathBuf::from)
}

/// Runs a case from scratch and compares with one outcome.
fn faults(case: &Value, outcome: &Value) -> Faults {
    let mut world = match World::build(case) {
        Ok(world) => world,
        Err(fault) => return vec![fault],
    };
    expect::compare(case, outcome, &mut world)
}

/// The faults of a case: those of its first outcome when no other is met either.
fn run(case: &Value) -> Faults {
    let first = faults(case, &case["expect"]);
    let others = case["alt"].as_array().map_or(&[][..], Vec::as_slice);
    if first.is_empty() || others.iter().any(|other| faults(case, other).is_empty()) {
        return Vec::new();
    }
    first
}

#[test]
fn reported_defects() {
    let file = cases_file();
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut by_kind: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let faults = run(&case);
        let kind = case["kind"].as_str().unwrap_or("?").to_owned();
        let counts = by_kind.entry(kind.clone()).or_default();
        counts.1 += 1;
        if faults.is_empty() {
            counts.0 += 1;
        } else {
            wrong.push(format!("{} {kind}: {}", case["id"], faults.join("; ")));
        }
    }
    let n_cases: usize = by_kind.values().map(|(_, all)| all).sum();
    println!("{} of {n_cases} cases are right", n_cases - wrong.len());
    for (kind, (right, all)) in by_kind {
        println!("  {kind}: {right} of {all}");
    }
    assert!(n_cases > 0, "there are no cases in {}", file.display());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_harness_tells_right_from_wrong() {
    let case = |expect: &str| -> Value {
        let text = format!(
            r#"{{"kind": "x", "dir": "a", "file": "SKILL.md",
                 "input": "---\nname: a\ndescription: x\nmodel: y\n---\nB\n", "expect": {expect}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    assert!(run(&case(r#"{"ok": true, "name": "a", "warn": ["unknown-field"]}"#)).is_empty());
    let wrong = [
        r#"{"ok": false, "error": "not-utf8"}"#,
        r#"{"ok": true, "name": "b"}"#,
        r#"{"ok": true, "body": "C"}"#,
        r#"{"ok": true, "strict_ok": true}"#,
        r#"{"ok": true, "warn": ["not-utf8"]}"#,
        r#"{"ok": true, "warn_not": ["unknown-field"]}"#,
        r#"{"ok": true, "catalog_contains": ["nothing of this"]}"#,
        r#"{"ok": true, "a_key_of_another_harness": 1}"#,
    ];
    for expect in wrong {
        assert!(!run(&case(expect)).is_empty(), "{expect}");
    }
    let steps = |step: &str| -> Value {
        let text = format!(
            r#"{{"files": {{"a/SKILL.md": "---\nname: a\ndescription: x\n---\nOLD\n"}},
                 "steps": ["activate a", "{step}"], "expect": {{"all_steps_hold": true}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    assert!(run(&steps("catalog == [a]")).is_empty());
    for step in ["catalog == []", "activate b -> OLD", "do a dance", "refresh -> error for a"] {
        assert!(!run(&steps(step)).is_empty(), "{step}");
    }
}
