//! Tests of what a conversation is given.

use std::fs;
use std::path::Path;

use super::{Caller, Given, SkillSession};
use crate::{ChangeKind, Error, Window, scan};

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn skill(root: &Path, name: &str, body: &str) {
    let last = name.rsplit('/').next().unwrap();
    let text = format!("---\nname: {last}\ndescription: Does {last}.\n---\n{body}\n");
    write(root, &format!("{name}/SKILL.md"), &text);
}

fn session(root: &Path) -> SkillSession {
    let catalog = scan(&[root.to_owned()]).unwrap();
    let text = catalog.render();
    SkillSession::new(catalog, text)
}

#[test]
fn a_text_is_given_once_until_it_leaves_or_changes() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "OLD");
    write(root.path(), "a/references/r.md", "R1\n");
    let mut session = session(root.path());
    let first = session.activate("a", Caller::Model, 100).unwrap().text().expect("it is new");
    assert_eq!((first.body.as_str(), first.files[0].path.as_str()), ("OLD\n", "references/r.md"));
    let again = session.activate("a", Caller::User, 200).unwrap();
    assert_eq!(again, Given::Already { place: 100 });
    assert!(session.evict("a") && !session.evict("a"));
    assert!(session.activate("a", Caller::Model, 300).unwrap().text().is_some());

    let address = "a/references/r.md";
    assert!(session.read(address, Window::default(), 400).unwrap().text().is_some());
    let again = session.read("a/references//r.md", Window::default(), 500).unwrap();
    assert_eq!(again, Given::Already { place: 400 });
    write(root.path(), address, "R2\n");
    let Given::New { text, note } = session.read(address, Window::default(), 600).unwrap() else {
        panic!("its content is new")
    };
    assert_eq!((text.text.as_str(), note), ("R2\n", None));

    skill(root.path(), "a", "NEW");
    let (changes, told) = session.refresh(scan(&[root.path().to_owned()]).unwrap());
    assert_eq!((changes.len(), told.is_some()), (1, true));
    let new = session.activate("a", Caller::Model, 700).unwrap().text().expect("it has changed");
    assert_eq!(new.body, "NEW\n");
    assert_eq!(session.catalog_text(), "- a: Does a.\n");
}

#[test]
fn versions_do_not_mix_unseen() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "OLD");
    write(root.path(), "a/r.md", "R1\n");
    let mut session = session(root.path());
    session.activate("a", Caller::Model, 1).unwrap();
    skill(root.path(), "a", "NEW");
    write(root.path(), "a/r.md", "R2\n");
    let Given::New { note: Some(note), .. } = session.read("a/r.md", Window::default(), 2).unwrap()
    else {
        panic!("the reader is told")
    };
    assert!(note.contains("has changed since"), "{note}");
}

#[test]
fn a_removed_skill_is_an_honest_error() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "A");
    let mut session = session(root.path());
    fs::remove_dir_all(root.path().join("a")).unwrap();
    let gone = session.activate("a", Caller::Model, 1).unwrap_err();
    assert!(matches!(&gone, Error::Gone { skill, .. } if skill == "a"), "{gone}");
    let (_, told) = session.refresh(scan(&[root.path().to_owned()]).unwrap());
    assert_eq!(told.unwrap(), "[SKILLS UPDATE]\n- Removed: a\n");
    let unknown = session.activate("a", Caller::Model, 1).unwrap_err();
    assert!(matches!(unknown, Error::UnknownSkill { .. }));
}

#[test]
fn who_may_not_activate_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let text = |field: &str| format!("---\ndescription: x\n{field}: true\n---\n");
    write(root.path(), "h/SKILL.md", &text("disable-model-invocation"));
    write(root.path(), "u/SKILL.md", &text("user-invocable").replace("true", "no"));
    let mut session = session(root.path());
    let refused = |outcome: Result<_, Error>| outcome.is_err_and(|e| e.code() == "not-invocable");
    assert!(refused(session.activate("h", Caller::Model, 1)));
    assert!(session.activate("h", Caller::User, 1).is_ok());
    assert!(refused(session.activate("u", Caller::User, 1)));
    assert!(session.activate("u", Caller::Model, 1).is_ok());
    assert!(!session.catalog_text().contains("- h"));
}

#[test]
fn files_and_inner_skills_are_listed_and_not_put_in() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "outer", "See references/a.md.");
    skill(root.path(), "outer/inner", "Inner body.");
    write(root.path(), "outer/references/a.md", "REF-A\n");
    write(root.path(), "outer/.hidden", "x");
    write(root.path(), "outer/inner/own.md", "x");
    for n in 0..120 {
        write(root.path(), &format!("outer/scripts/{n:03}.sh"), "x");
    }
    let mut session = session(root.path());
    let outer = session.activate("outer", Caller::Model, 1).unwrap().text().unwrap();
    let listing = outer.listing();
    assert!(listing.contains("- outer/references/a.md\n") && !listing.contains("REF-A"));
    assert!(listing.contains("- outer/inner\n") && !listing.contains("own.md"));
    assert!(!listing.contains("hidden") && !listing.contains("SKILL.md"));
    assert!(listing.contains("21 more files are not listed."), "{listing}");
    let inner = session.activate("inner", Caller::Model, 1).unwrap().text().unwrap();
    assert_eq!((inner.id.as_str(), inner.files.len()), ("outer/inner", 1));
}

#[test]
fn a_body_that_did_not_change_is_not_given_again() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "Body.");
    let mut session = session(root.path());
    assert!(matches!(session.activate("a", Caller::Model, 7), Ok(Given::New { .. })));
    let rescan = || scan(&[root.path().to_owned()]).unwrap();
    write(root.path(), "a/SKILL.md", "---\nname: a\ndescription: Other words.\n---\nBody.\n");
    let (changes, told) = session.refresh(rescan());
    assert_eq!(changes[0].kind, ChangeKind::Changed { front_matter_only: true });
    assert!(told.unwrap().contains("- Changed: a: Other words.\n"));
    assert!(matches!(session.activate("a", Caller::Model, 9), Ok(Given::Already { place: 7 })));
    write(root.path(), "a/SKILL.md", "---\nname: a\ndescription: Other words.\n---\nNew.\n");
    session.refresh(rescan());
    assert!(matches!(session.activate("a", Caller::Model, 9), Ok(Given::New { .. })));
}
