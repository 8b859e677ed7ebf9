//! The format, held against real skills. They lie outside the repository.

use std::collections::BTreeMap;
use std::fs;

use skillgraft_skills::scan;

use crate::common::shared;

#[test]
fn real_skills_are_read_or_reported() {
    let Some(corpus) = shared("corpus") else {
        eprintln!("SKIPPED: the skill corpus is not here");
        return;
    };
    let mut roots: Vec<_> =
        fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    roots.retain(|root| root.is_dir());
    let (mut n_skills, mut n_omitted) = (0, 0);
    let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
    for root in roots {
        let catalog = scan(&[root]).unwrap();
        n_skills += catalog.len();
        n_omitted += catalog.omitted().count();
        for finding in catalog.diagnostics() {
            *by_code.entry(finding.code.name()).or_default() += 1;
        }
        for finding in catalog.omitted() {
            println!("{finding}");
        }
        assert!(catalog.skills().iter().all(|skill| !skill.description.is_empty()));
    }
    println!("{n_skills} real skills, {n_omitted} left out; findings: {by_code:#?}");
    assert!(n_skills > 700 && n_omitted * 50 < n_skills, "{n_skills} and {n_omitted}");
}
