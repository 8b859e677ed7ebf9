//! Tests of importing skills.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{ImportError, ImportLimits, Imported, import, import_zip};

const SKILL: &str = "---\nname: demo\ndescription: Does a demo.\n---\nBody.\n";

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn unpacked(bytes: Vec<u8>, into: &Path) -> Result<Imported, ImportError> {
    import_zip(Cursor::new(bytes), "archive", into, &ImportLimits::default())
}

/// Everything below a folder, sorted.
fn tree(folder: &Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(folder).min_depth(1).sort_by_file_name();
    let relative =
        |entry: walkdir::DirEntry| entry.path().strip_prefix(folder).unwrap().display().to_string();
    entries.into_iter().map(|entry| relative(entry.unwrap())).collect()
}

/// The error for an archive, and that nothing has come of it.
fn refused(files: &[(&str, &[u8])]) -> &'static str {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("skills");
    let code = unpacked(archive(files), &into).expect_err("it must be refused").code();
    assert!(tree(folder.path()).iter().all(|path| path == "skills"), "{:?}", tree(folder.path()));
    code
}

#[test]
fn skills_come_in_from_any_depth() {
    let folder = tempfile::tempdir().unwrap();
    let other = SKILL.replace("demo", "other");
    let files: [(&str, &[u8]); 7] = [
        ("repo-main/README.md", b"x"),
        ("repo-main/skills/demo/SKILL.md", SKILL.as_bytes()),
        ("repo-main/skills/demo/scripts/a.sh", b"echo"),
        ("repo-main\\skills\\other\\SKILL.md", other.as_bytes()),
        ("repo-main/skills/demo/inner/SKILL.md", b"---\ndescription: Inner.\n---\n"),
        ("repo-main/skills/demo/.git/config", b"x"),
        ("__MACOSX/repo-main/skills/demo/SKILL.md", b"x"),
    ];
    let imported = unpacked(archive(&files), folder.path()).unwrap();
    let ids: Vec<&str> = imported.skills.iter().map(|skill| skill.id.as_str()).collect();
    assert_eq!(ids, ["demo", "demo/inner", "other"]);
    assert!(imported.skills.iter().all(|skill| skill.file.exists()));
    let expected = [
        "demo",
        "demo/SKILL.md",
        "demo/inner",
        "demo/inner/SKILL.md",
        "demo/scripts",
        "demo/scripts/a.sh",
        "other",
        "other/SKILL.md",
    ];
    assert_eq!(tree(folder.path()), expected);
}

#[test]
fn a_skill_at_the_top_gets_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    unpacked(archive(&[("SKILL.md", SKILL.as_bytes()), ("a.txt", b"x")]), folder.path()).unwrap();
    assert_eq!(tree(folder.path()), ["demo", "demo/SKILL.md", "demo/a.txt"]);
    let unnamed: &[u8] = b"---\ndescription: x\n---\n";
    unpacked(archive(&[("SKILL.md", unnamed)]), folder.path()).unwrap();
    assert!(folder.path().join("archive/SKILL.md").exists());
}

#[test]
fn names_that_leave_are_refused() {
    let skill = ("e/SKILL.md", SKILL.as_bytes());
    for name in
        ["../x", "e/../../x", "e\\..\\..\\x.txt", "/etc/x", "\\x", "C:\\x.txt", "e/a:b", "e/\0"]
    {
        assert_eq!(refused(&[skill, (name, b"x")]), "zip-slip", "{name:?}");
    }
}

#[test]
fn links_are_refused() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("e/SKILL.md", SimpleFileOptions::default()).unwrap();
    writer.write_all(SKILL.as_bytes()).unwrap();
    writer.add_symlink("e/link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let outcome = unpacked(writer.finish().unwrap().into_inner(), folder.path());
    assert_eq!(outcome.unwrap_err().code(), "zip-symlink");
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn bombs_are_refused() {
    let skill = ("e/SKILL.md", SKILL.as_bytes());
    let zeros = vec![0_u8; 2 << 20];
    assert_eq!(refused(&[skill, ("e/zeros", &zeros)]), "too-large", "ratio");
    let deep = "d/".repeat(40) + "x";
    assert_eq!(refused(&[skill, (&deep, b"x")]), "too-large", "depth");
    let limits = ImportLimits { entries_max: 3, total_bytes_max: 99, ..ImportLimits::default() };
    let run = |files: &[(&str, &[u8])]| {
        let folder = tempfile::tempdir().unwrap();
        import_zip(Cursor::new(archive(files)), "a", folder.path(), &limits).map_err(|e| e.code())
    };
    assert!(run(&[skill, ("e/a", &[b'x'; 40])]).is_ok());
    assert_eq!(run(&[skill, ("e/a", &[b'x'; 60])]).unwrap_err(), "too-large");
    assert_eq!(run(&[skill, ("e/a", b""), ("e/b", b""), ("e/c", b"")]).unwrap_err(), "too-large");
}

#[test]
fn sizes_that_an_archive_states_are_not_believed() {
    let mut bytes = archive(&[("e/SKILL.md", SKILL.as_bytes()), ("e/a", &[b'x'; 5000])]);
    // The size in the central directory and the local header becomes 1.
    let size = 5000_u32.to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == size).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
    }
    let folder = tempfile::tempdir().unwrap();
    let limits = ImportLimits { file_bytes_max: 1000, ..ImportLimits::default() };
    let outcome = import_zip(Cursor::new(bytes), "a", folder.path(), &limits);
    assert!(outcome.is_err());
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn what_is_no_skill_stays_out() {
    assert_eq!(refused(&[("readme.txt", b"x")]), "no-skills");
    assert_eq!(refused(&[("e/SKILL.md", b"no front matter")]), "no-skills");
    let twice: [(&str, &[u8]); 2] =
        [("a/demo/SKILL.md", SKILL.as_bytes()), ("b/Demo/SKILL.md", b"---\ndescription: x\n---\n")];
    assert_eq!(refused(&twice), "duplicate");
    let folder = tempfile::tempdir().unwrap();
    let outcome = unpacked(b"not a zip at all".to_vec(), folder.path());
    assert_eq!(outcome.unwrap_err().code(), "not-an-archive");
}

#[test]
fn what_is_there_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    let other = SKILL.replace("demo", "other");
    let files: [(&str, &[u8]); 2] =
        [("demo/SKILL.md", SKILL.as_bytes()), ("other/SKILL.md", other.as_bytes())];
    let outcome = unpacked(archive(&files), folder.path());
    assert!(matches!(outcome, Err(ImportError::Exists { path }) if path.ends_with("other")));
    assert_eq!(tree(folder.path()), ["other"], "all or none");
}

#[test]
fn folders_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source/demo");
    fs::create_dir_all(source.join("scripts")).unwrap();
    fs::create_dir_all(source.join(".git")).unwrap();
    fs::write(source.join("SKILL.md"), SKILL).unwrap();
    fs::write(source.join("scripts/a.sh"), "echo").unwrap();
    fs::write(source.join(".git/config"), "x").unwrap();
    let into = folder.path().join("into");
    import(&source, &into, &ImportLimits::default()).unwrap();
    let expected = ["demo", "demo/SKILL.md", "demo/scripts", "demo/scripts/a.sh"];
    assert_eq!(tree(&into), expected);
    let again = import(&source, &into, &ImportLimits::default()).unwrap_err();
    assert_eq!(again.code(), "exists");

    let limits = ImportLimits { file_bytes_max: 3, ..ImportLimits::default() };
    let into = folder.path().join("elsewhere");
    assert_eq!(import(&source, &into, &limits).unwrap_err().code(), "too-large");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc/passwd", source.join("link")).unwrap();
        let linked = import(&source, &into, &ImportLimits::default()).unwrap_err();
        assert_eq!(linked.code(), "zip-symlink");
    }
    assert!(!into.exists(), "the source is checked before anything is made");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_archives_leave_nothing_outside(at in 0..400_usize, byte in any::<u8>(), cut in 0..40_usize) {
        let files: [(&str, &[u8]); 2] = [("e/SKILL.md", SKILL.as_bytes()), ("e/a.txt", b"text")];
        let mut bytes = archive(&files);
        let n_bytes = bytes.len();
        bytes[at % n_bytes] = byte;
        bytes.truncate(n_bytes - cut);
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("into");
        let outcome = unpacked(bytes, &into);
        let left = tree(folder.path());
        prop_assert!(left.iter().all(|path| path.starts_with("into")));
        if outcome.is_err() {
            prop_assert!(left.len() <= 1, "{:?}", left);
        }
    }
}
