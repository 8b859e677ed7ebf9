//! The format, held against real skills. They lie outside the repository.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use skillgraft_skills::{Catalog, Code, scan};
use walkdir::WalkDir;

use crate::common::shared;

/// Folders that findings name as a whole.
const WHOLE_FOLDERS: [Code; 3] = [Code::HiddenFolder, Code::Ignored, Code::DepthLimit];

/// Whether a skill file is in the catalog, named by a finding, or a copy of one
/// that is in the catalog.
fn is_accounted_for(file: &Path, catalog: &Catalog, digests: &HashSet<[u8; 32]>) -> bool {
    let is_in = catalog.skills().iter().any(|skill| skill.file == file);
    let is_named = catalog.diagnostics().iter().any(|finding| {
        finding.path == file
            || (WHOLE_FOLDERS.contains(&finding.code) && file.starts_with(&finding.path))
    });
    is_in || is_named || digests.contains(blake3::hash(&fs::read(file).unwrap()).as_bytes())
}

#[test]
fn real_skills_are_read_or_reported() {
    let Some(corpus) = shared("corpus") else {
        eprintln!("SKIPPED: the skill corpus is not here");
        return;
    };
    let catalog = scan(std::slice::from_ref(&corpus)).unwrap();
    let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in catalog.diagnostics() {
        *by_code.entry(finding.code.name()).or_default() += 1;
    }
    let digests: HashSet<[u8; 32]> = catalog.skills().iter().map(|skill| skill.digest).collect();
    let files = WalkDir::new(&corpus).into_iter().map(|entry| entry.unwrap().into_path());
    let is_skill =
        |file: &Path| file.file_name().is_some_and(|name| name.eq_ignore_ascii_case("SKILL.md"));
    let files: Vec<_> = files.filter(|file| is_skill(file)).collect();
    let lost: Vec<_> =
        files.iter().filter(|file| !is_accounted_for(file, &catalog, &digests)).collect();
    let n_omitted = catalog.omitted().count();
    println!(
        "{} files, {} skills in the catalog, {n_omitted} left out; findings: {by_code:#?}",
        files.len(),
        catalog.len()
    );
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(catalog.skills().iter().all(|skill| !skill.description.is_empty()));
    assert!(files.len() > 800 && n_omitted * 50 < files.len(), "{n_omitted} left out");
}
