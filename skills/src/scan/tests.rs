//! Tests of finding skills in folders.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DEPTH_MAX, ScanOptions, Scanner, scan};
use crate::{Catalog, Code, Error, Root, Severity};

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn skill(root: &Path, folder: &str, description: &str) {
    let name = folder.rsplit('/').next().unwrap();
    let text = format!("---\nname: {name}\ndescription: {description}\n---\nBody of {name}.\n");
    write(root, &format!("{folder}/SKILL.md"), &text);
}

fn ids(catalog: &Catalog) -> Vec<&str> {
    catalog.skills().iter().map(|skill| skill.id.as_str()).collect()
}

fn codes(catalog: &Catalog) -> Vec<Code> {
    catalog.diagnostics().iter().map(|finding| finding.code).collect()
}

fn scan_one(root: &Path) -> Catalog {
    scan(&[root.to_owned()]).unwrap()
}

#[test]
fn no_roots_no_folder_no_skills() {
    assert!(matches!(scan(&[]), Err(Error::NoRoots)));
    let root = tempfile::tempdir().unwrap();
    let absent = root.path().join("absent");
    match scan(std::slice::from_ref(&absent)) {
        Err(Error::Root { path, .. }) => assert_eq!(path, absent),
        other => panic!("{other:?}"),
    }
    let catalog = scan_one(root.path());
    assert!(catalog.is_empty() && catalog.diagnostics().is_empty());
    assert!(matches!(catalog.require_skills(), Err(Error::NoSkills { .. })));

    write(root.path(), "bad/SKILL.md", "no front matter");
    let error = scan_one(root.path()).require_skills().expect_err("nothing usable");
    let Error::NoSkills { omitted, .. } = &error else { panic!("{error:?}") };
    assert_eq!(omitted[0].code, Code::NoFrontMatter);
    assert!(error.hint().unwrap().contains("bad"), "{:?}", error.hint());
}

#[test]
fn a_bad_skill_does_not_hide_its_neighbours() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "b", "Does b.");
    skill(root.path(), "group/a", "Does a.");
    write(root.path(), "c/SKILL.md", "---\nname: c\n---\n");
    fs::create_dir_all(root.path().join("d")).unwrap();
    fs::write(root.path().join("d/SKILL.md"), b"---\nname: d\ndescription: caf\xe9\n---\n")
        .unwrap();
    let catalog = scan_one(root.path());
    assert_eq!(ids(&catalog), ["a", "b"]);
    assert_eq!(codes(&catalog), [Code::DescriptionMissing, Code::NotUtf8]);
    assert!(catalog.omitted().all(|finding| finding.severity == Severity::Error));
    assert_eq!(catalog.omitted().count(), 2);
}

#[test]
fn nested_skills_are_addressed_through_the_outer_one() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "outer", "Does outer.");
    skill(root.path(), "outer/parts/inner", "Does inner.");
    skill(root.path(), "outer/parts/inner/core", "Does core.");
    skill(root.path(), "other", "Does other.");
    skill(root.path(), "other/inner", "Does the other inner.");
    let catalog = scan_one(root.path());
    let expected = ["other", "other/inner", "outer", "outer/inner", "outer/inner/core"];
    assert_eq!(ids(&catalog), expected);
    assert_eq!(catalog.render(), "- other: Does other.\n- outer: Does outer.\n");
    let core = catalog.resolve("core").unwrap();
    assert_eq!(catalog.get(core).parent.as_deref(), Some("outer/inner"));
    assert!(matches!(catalog.resolve("inner"), Err(Error::AmbiguousSkill { .. })));
    assert!(catalog.resolve("outer/inner").is_ok());
}

#[test]
fn an_earlier_root_wins_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "project/deploy", "From the project.");
    skill(root.path(), "user/deploy", "From the user.");
    skill(root.path(), "user/same", "Same.");
    skill(root.path(), "project/same", "Same.");
    let roots = |names: [&str; 2]| names.map(|name| root.path().join(name));
    let catalog = scan(&roots(["project", "user"])).unwrap();
    assert_eq!(ids(&catalog), ["deploy", "same"]);
    assert_eq!(catalog.skills()[0].description, "From the project.");
    assert_eq!(codes(&catalog), [Code::Shadowed], "equal copies collapse without a word");
    let catalog = scan(&roots(["user", "project"])).unwrap();
    assert_eq!(catalog.skills()[0].description, "From the user.");
}

#[test]
fn hidden_folders_and_copies_are_not_walked() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), ".top/a", "Does a.");
    skill(root.path(), ".top/.git/b", "Does b.");
    skill(root.path(), ".top/node_modules/c", "Does c.");
    let top = root.path().join(".top");
    assert_eq!((ids(&scan_one(&top)), codes(&scan_one(&top))), (vec!["a"], Vec::new()));
    skill(root.path(), ".top/.client/skills/d", "Does d.");
    skill(root.path(), ".top/.client/skills/e", "Does e.");
    let catalog = scan_one(&top);
    assert_eq!(ids(&catalog), ["a"]);
    let [finding] = catalog.diagnostics() else { panic!("{:?}", catalog.diagnostics()) };
    assert_eq!((finding.code, &finding.path), (Code::HiddenFolder, &top.join(".client")));
    assert!(finding.message.contains("holds 2 skills"), "{finding}");
}

#[test]
fn depth_is_bounded_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let below = |n: usize| format!("{}deep", "d/".repeat(n - 1));
    skill(root.path(), &below(DEPTH_MAX), "Just reached.");
    assert_eq!(ids(&scan_one(root.path())), ["deep"]);
    let deeper = tempfile::tempdir().unwrap();
    skill(deeper.path(), &below(DEPTH_MAX + 1), "Too deep.");
    let catalog = scan_one(deeper.path());
    assert!(catalog.is_empty());
    assert_eq!(codes(&catalog), [Code::DepthLimit]);
}

#[cfg(target_os = "linux")] // Other file systems take `skill.md` for `SKILL.md`.
#[test]
fn other_spellings_of_the_file_name_are_reported() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "Does a.");
    write(root.path(), "a/skill.md", "---\nname: a\ndescription: lower\n---\n");
    write(root.path(), "b/skill.md", "---\nname: b\ndescription: lower\n---\n");
    write(root.path(), "c/SKILL.md/inner.txt", "x");
    let catalog = scan_one(root.path());
    assert_eq!(ids(&catalog), ["a", "b"]);
    assert_eq!(catalog.skills()[0].description, "Does a.");
    assert_eq!(codes(&catalog), [Code::FilenameCase, Code::FilenameCase, Code::Io]);
}

#[test]
fn the_result_does_not_depend_on_the_order_of_creation() {
    let folders = ["zz/x", "aa/x", "mm/x", "b", "b/n", "a"];
    let mut renders: Vec<(String, Vec<String>)> = Vec::new();
    for turn in 0..folders.len() {
        let root = tempfile::tempdir().unwrap();
        let mut order = folders.to_vec();
        order.rotate_left(turn);
        for folder in order {
            skill(root.path(), folder, &format!("From {folder}."));
        }
        let catalog = scan_one(root.path());
        let files = |catalog: &Catalog| -> Vec<String> {
            let relative = |file: &PathBuf| file.strip_prefix(root.path()).unwrap().to_owned();
            let files = catalog.skills().iter().map(|skill| relative(&skill.file));
            files.map(|file| file.display().to_string()).collect()
        };
        renders.push((catalog.render(), files(&catalog)));
    }
    assert!(renders[0].0.contains("- x: From aa/x.\n"), "{}", renders[0].0);
    assert!(renders.iter().all(|render| *render == renders[0]), "{renders:#?}");
}

#[cfg(unix)]
#[test]
fn symlinks_are_followed_once() {
    use std::os::unix::fs::symlink;

    let root = tempfile::tempdir().unwrap();
    let [inside, outside] = ["in", "out"].map(|name| root.path().join(name));
    skill(&inside, "x", "Does x.");
    skill(&outside, "linked", "Does linked.");
    symlink("../..", inside.join("x/up")).unwrap();
    symlink(&outside, inside.join("also")).unwrap();
    symlink(&outside, inside.join("twice")).unwrap();
    symlink("nowhere", inside.join("dangling")).unwrap();
    let catalog = scan_one(&inside);
    assert_eq!(catalog.skills().iter().filter(|skill| skill.name == "x").count(), 1);
    assert_eq!(catalog.skills().iter().filter(|skill| skill.name == "linked").count(), 1);
    assert!(codes(&catalog).is_empty(), "{:?}", catalog.diagnostics());
}

#[test]
fn a_second_scan_gives_the_same_snapshot() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "Does a.");
    skill(root.path(), "b/c", "Does c.");
    let mut scanner = Scanner::new(vec![Root::given(root.path())], ScanOptions::default());
    let first = scanner.scan().unwrap();
    assert_eq!(scanner.n_read(), 2);
    assert!(scanner.scan().unwrap().is_same(&first));

    write(root.path(), "a/SKILL.md", "---\nname: a\ndescription: Does a.\n---\nBody of A.\n");
    let second = scanner.scan().unwrap();
    assert!(!second.is_same(&first));
    assert_eq!(second.skills()[0].body, "Body of A.\n");
    assert!(std::sync::Arc::ptr_eq(&first.skills()[1], &second.skills()[1]), "c is shared");

    fs::remove_dir_all(root.path().join("b")).unwrap();
    skill(root.path(), "d", "Does d.");
    assert_eq!(ids(&scanner.scan().unwrap()), ["a", "d"]);
    fs::rename(root.path().join("d"), root.path().join("e")).unwrap();
    let renamed = scanner.scan().unwrap();
    assert_eq!(codes(&renamed), [Code::NameDirMismatch]);
}

#[test]
fn a_scanner_gives_what_a_fresh_scan_gives() {
    let root = tempfile::tempdir().unwrap();
    let mut scanner = Scanner::new(vec![Root::given(root.path())], ScanOptions::default());
    let steps: [fn(&Path); 7] = [
        |root| skill(root, "outer", "Does outer."),
        |root| skill(root, "outer/inner", "Does inner."),
        |root| write(root, "bad/SKILL.md", "---\nname: bad\n---\n"),
        |root| fs::remove_file(root.join("outer/SKILL.md")).unwrap(),
        |root| write(root, "bad/SKILL.md", "---\nname: bad\ndescription: x\n---\n"),
        |root| skill(root, "outer", "Does outer again."),
        |root| write(root, ".ignore", "bad\n"),
    ];
    for step in steps {
        step(root.path());
        let (warm, fresh) = (scanner.scan().unwrap(), scan_one(root.path()));
        assert_eq!(warm.skills(), fresh.skills());
        assert_eq!(warm.diagnostics(), fresh.diagnostics());
    }
}

#[test]
fn strict_leaves_out_what_the_specification_does_not_allow() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "a", "Does a.");
    write(root.path(), "b/SKILL.md", "---\nname: b\ndescription: x\nmodel: big\n---\n");
    write(root.path(), "c/SKILL.md", "---\nname: c\ndescription: x\nallowed-tools: A, B\n---\n");
    let options = ScanOptions { level: crate::Level::Strict, ..ScanOptions::default() };
    let catalog = Scanner::new(vec![Root::given(root.path())], options).scan().unwrap();
    assert_eq!(ids(&catalog), ["a", "c"]);
    let omitted: Vec<Code> = catalog.omitted().map(|finding| finding.code).collect();
    assert_eq!(omitted, [Code::UnknownField]);
    assert_eq!(ids(&scan_one(root.path())), ["a", "b", "c"]);
}

#[test]
fn ignore_files_count_from_the_root_down() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), ".gitignore", "root\n");
    let root = folder.path().join("root");
    skill(&root, "a", "Does a.");
    skill(&root, "build/b", "Does b.");
    skill(&root, "old/keep", "Does keep.");
    skill(&root, "old/c", "Does c.");
    write(&root, ".gitignore", "build/\n");
    write(&root, "old/.ignore", "*\n!keep\n");
    let catalog = scan_one(&root);
    assert_eq!(ids(&catalog), ["a", "keep"]);
    assert_eq!(codes(&catalog), [Code::Ignored; 2], "{:?}", catalog.diagnostics());
    let options = ScanOptions { ignore_files: false, ..ScanOptions::default() };
    let all = Scanner::new(vec![Root::given(&root)], options).scan().unwrap();
    assert_eq!(ids(&all), ["a", "b", "c", "keep"]);
}

#[test]
fn what_is_inside_a_shadowed_skill_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let [project, user] = ["project", "user"].map(|name| folder.path().join(name));
    skill(&project, "deploy", "From the project.");
    skill(&user, "deploy", "From the user.");
    skill(&user, "deploy/edge", "Belongs to the user's.");
    skill(&user, "other", "Does other.");
    let catalog = scan(&[project, user]).unwrap();
    assert_eq!(ids(&catalog), ["deploy", "other"]);
    assert_eq!(codes(&catalog), [Code::Shadowed, Code::Shadowed]);
}

#[test]
fn the_number_of_folders_is_bounded() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..9 {
        skill(root.path(), &format!("s{n}"), "Does it.");
    }
    let options = ScanOptions { folders_max: 5, ..ScanOptions::default() };
    let catalog = Scanner::new(vec![Root::given(root.path())], options).scan().unwrap();
    assert_eq!(ids(&catalog), ["s0", "s1", "s2", "s3"], "the root is one of the five");
    assert_eq!(codes(&catalog), [Code::DepthLimit]);
}

#[test]
fn a_root_that_need_not_exist_may_be_absent() {
    let root = tempfile::tempdir().unwrap();
    let absent = root.path().join("absent");
    let optional = Root { path: absent.clone(), origin: crate::Origin::User };
    let mut scanner = Scanner::new(vec![optional], ScanOptions::default());
    assert!(scanner.scan().unwrap().is_empty());
    skill(&absent, "a", "Does a.");
    assert_eq!(ids(&scanner.scan().unwrap()), ["a"]);
    fs::remove_dir_all(&absent).unwrap();
    assert!(scanner.scan().unwrap().is_empty());
}
