//! Tests of reading files of a skill.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::{FileText, READ_BYTES_MAX, Window};
use crate::{Catalog, Error, scan};

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, bytes).unwrap();
}

fn skills() -> (tempfile::TempDir, Catalog) {
    let root = tempfile::tempdir().unwrap();
    for name in ["outer", "outer/inner", "plain"] {
        let last = name.rsplit('/').next().unwrap();
        write(
            root.path(),
            &format!("s/{name}/SKILL.md"),
            format!("---\nname: {last}\ndescription: x\n---\n"),
        );
    }
    write(root.path(), "s/outer/references/api.md", "API\n");
    write(
        root.path(),
        "s/outer/long.txt",
        (1..=500).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat(),
    );
    write(root.path(), "secret.txt", "SECRET\n");
    write(root.path(), "s/outer-2/x.md", "SIBLING\n");
    let catalog = scan(&[root.path().join("s")]).unwrap();
    (root, catalog)
}

fn read(catalog: &Catalog, address: &str, window: Window) -> Result<FileText, Error> {
    let address = catalog.locate(address)?;
    catalog.get(address.skill).read(address.path.as_deref().unwrap_or(""), window)
}

#[test]
fn addresses_name_the_innermost_skill() {
    let (_root, catalog) = skills();
    let located = |address: &str| {
        let found = catalog.locate(address).unwrap();
        (catalog.get(found.skill).id.clone(), found.path)
    };
    let pair = |id: &str, path: Option<&str>| (id.to_owned(), path.map(str::to_owned));
    assert_eq!(located("outer"), pair("outer", None));
    assert_eq!(located("outer/references/api.md"), pair("outer", Some("references/api.md")));
    assert_eq!(located("outer/inner/x.md"), pair("outer/inner", Some("x.md")));
    assert_eq!(located("inner/x.md"), pair("outer/inner", Some("x.md")));
    assert_eq!(located("outer/../secret.txt"), pair("outer", Some("../secret.txt")));
    assert!(matches!(catalog.locate("nothing/x"), Err(Error::UnknownSkill { .. })));
}

#[test]
fn windows_say_what_they_show() {
    let (_root, catalog) = skills();
    let shown = |offset, limit| {
        let text = read(&catalog, "outer/long.txt", Window { offset, limit }).unwrap();
        (text.text.lines().count(), text.notice())
    };
    let whole = read(&catalog, "outer/references/api.md", Window::default()).unwrap();
    assert_eq!((whole.text.as_str(), whole.notice()), ("API\n", None));
    assert_eq!(shown(1, 200), (200, Some("showing lines 1-200 of 500".to_owned())));
    assert_eq!(shown(401, 200), (100, Some("showing lines 401-500 of 500".to_owned())));
    assert_eq!(shown(0, 1), (1, Some("showing lines 1-1 of 500".to_owned())));
    assert_eq!(shown(501, 9), (0, Some("showing no lines: the file has 500".to_owned())));
    assert_eq!(shown(1, usize::MAX), (500, None));
}

#[test]
fn long_lines_are_cut_and_said() {
    let (root, catalog) = skills();
    write(root.path(), "s/plain/one.txt", "é".repeat(READ_BYTES_MAX));
    let one = read(&catalog, "plain/one.txt", Window::WHOLE).unwrap();
    assert_eq!((one.text.len(), one.is_cut), (READ_BYTES_MAX, true));
    assert!(one.notice().unwrap().contains("cut"));
    write(root.path(), "s/plain/two.txt", format!("a\n{}", "b".repeat(READ_BYTES_MAX)));
    let two = read(&catalog, "plain/two.txt", Window::WHOLE).unwrap();
    assert_eq!(
        (two.text.as_str(), two.notice().unwrap().as_str()),
        ("a\n", "showing lines 1-1 of 2")
    );
}

#[test]
fn paths_cannot_leave_the_skill() {
    let (root, catalog) = skills();
    let escapes = [
        "../secret.txt",
        "references/../../secret.txt",
        "..\\..\\secret.txt",
        "../outer-2/x.md",
        "/etc/passwd",
        "\\\\server\\share",
        "C:\\x.txt",
        "c:x.txt",
        "references/api.md\0.png",
    ];
    let outer = catalog.get(catalog.resolve("outer").unwrap());
    for path in escapes {
        let outcome = outer.read(path, Window::default());
        assert!(matches!(outcome, Err(Error::PathEscape { .. })), "{path:?}: {outcome:?}");
    }
    for path in ["", ".", "references", "absent.md", "SKILL.md/x", "references/../.."] {
        let outcome = outer.read(path, Window::default());
        assert!(
            matches!(outcome, Err(Error::FileNotFound { .. } | Error::PathEscape { .. })),
            "{path:?}"
        );
    }
    for path in [
        "references/api.md",
        "references\\api.md",
        "./references//api.md",
        "inner/../references/api.md",
    ] {
        assert_eq!(outer.read(path, Window::default()).unwrap().path, "references/api.md");
    }
    let near = outer.read("reference/api.md", Window::default()).unwrap_err();
    assert_eq!(near.hint().unwrap(), "did you mean `references/api.md`?");
    drop(root);
}

#[cfg(unix)]
#[test]
fn links_are_resolved_before_they_are_judged() {
    use std::os::unix::fs::symlink;

    let (root, catalog) = skills();
    let outer = root.path().join("s/outer");
    symlink("../../secret.txt", outer.join("leak.md")).unwrap();
    symlink("../..", outer.join("up")).unwrap();
    symlink("references/api.md", outer.join("alias.md")).unwrap();
    for path in ["outer/leak.md", "outer/up/secret.txt"] {
        let outcome = read(&catalog, path, Window::default());
        assert!(matches!(outcome, Err(Error::PathEscape { .. })), "{outcome:?}");
    }
    assert_eq!(read(&catalog, "outer/alias.md", Window::default()).unwrap().text, "API\n");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let (root, _) = skills();
    let text = "---\nname: outer\ndescription: x\n---\n[a](references/api.md) [b](gone.md)\n\n\
                [c](../outer-2/x.md) [d](references)\n";
    write(root.path(), "s/outer/SKILL.md", text);
    let catalog = scan(&[root.path().join("s")]).unwrap();
    let findings = catalog.get(catalog.resolve("outer").unwrap()).link_findings();
    let found: Vec<_> = findings.iter().map(|f| (f.code.name(), f.line)).collect();
    assert_eq!(found, [("link-broken", Some(5)), ("path-escape", Some(7))]);
}

#[test]
fn only_text_of_bounded_size_is_read() {
    let (root, catalog) = skills();
    write(root.path(), "s/plain/nul.bin", b"a\0b");
    write(root.path(), "s/plain/latin.txt", b"caf\xe9");
    write(root.path(), "s/plain/huge.txt", vec![b'a'; crate::FILE_BYTES_MAX as usize + 1]);
    let failed = |path: &str| read(&catalog, path, Window::default()).unwrap_err().code();
    assert_eq!(failed("plain/nul.bin"), "binary-file");
    assert_eq!(failed("plain/latin.txt"), "not-utf8");
    assert_eq!(failed("plain/huge.txt"), "too-large");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_path_gives_the_secret(parts in proptest::collection::vec("(\\.\\.|\\.|references|inner|secret\\.txt|s|outer|[/\\\\])", 0..9)) {
        let (_root, catalog) = skills();
        let outer = catalog.get(catalog.resolve("outer").unwrap());
        for separator in ["/", "\\"] {
            if let Ok(found) = outer.read(&parts.join(separator), Window::WHOLE) {
                prop_assert_ne!(found.text, "SECRET\n");
            }
        }
    }

    #[test]
    fn windows_tile_a_file(limit in 1..120_usize) {
        let (_root, catalog) = skills();
        let mut text = String::new();
        let mut offset = 1;
        while offset <= 500 {
            let part = read(&catalog, "outer/long.txt", Window { offset, limit }).unwrap();
            offset += part.n_given;
            text.push_str(&part.text);
        }
        let whole = read(&catalog, "outer/long.txt", Window::WHOLE).unwrap().text;
        prop_assert_eq!(text, whole);
    }
}
