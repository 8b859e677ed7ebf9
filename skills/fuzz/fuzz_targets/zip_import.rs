//! Any bytes as an archive: what comes of it stays in its folder, and nothing
//! stays of an archive that is refused.
#![no_main]

use std::fs;
use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use skillgraft_skills::{ImportLimits, import_zip};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let into = folder.path().join("into");
    let limits = ImportLimits {
        entries_max: 50,
        file_bytes_max: 1 << 20,
        total_bytes_max: 2 << 20,
        ..ImportLimits::default()
    };
    let outcome = import_zip(Cursor::new(bytes), "archive", &into, &limits);
    let names = |path| -> Vec<_> {
        fs::read_dir(path).map(|entries| entries.flatten().map(|e| e.file_name()).collect()).unwrap_or_default()
    };
    assert!(names(folder.path()).iter().all(|name| name == "into"));
    match outcome {
        Ok(imported) => {
            assert!(!imported.skills.is_empty());
            for skill in &imported.skills {
                assert!(skill.file.starts_with(&into) && skill.file.is_file());
            }
        }
        Err(_) => assert!(names(&into).is_empty()),
    }
});
