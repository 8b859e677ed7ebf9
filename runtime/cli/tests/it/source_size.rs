//! No file over 500 lines, no function over 70: what is longer is hard to read
//! in one sitting.

use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Every Rust file of the workspace.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the workspace can be read") {
            let path = entry.expect("the workspace can be read").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 50, "the search for sources works: {} found", files.len());
    files
}

#[test]
fn files_are_short() {
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
        let n_lines = text.lines().count();
        assert!(n_lines <= FILE_LINES_MAX, "{}: {n_lines} lines", path.display());
    }
}

#[test]
fn functions_are_short() {
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
        for (name, n_lines) in functions(&text) {
            let at = path.display();
            assert!(n_lines <= FUNCTION_LINES_MAX, "{at}: `{name}` has {n_lines} lines");
        }
    }
}

/// Functions of a file in standard format with their lengths: from the line
/// with `fn` to the first line that closes a brace at the same depth.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_function = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "unsafe fn "]
            .iter()
            .any(|start| code.starts_with(start));
        if !is_function || code.ends_with(';') {
            continue;
        }
        let depth = line.len() - code.len();
        let is_end = |line: &&str| line.trim_end() == format!("{}}}", " ".repeat(depth));
        if let Some(n_lines) = lines[at..].iter().position(is_end) {
            let name = code.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            found.push((name.unwrap_or(code), n_lines + 1));
        }
    }
    found
}

#[test]
fn functions_are_measured() {
    let text = "impl A {\n    pub fn long(\n        &self,\n    ) {\n        {\n        }\n    }\n}\nfn b<T>() {\n}\n";
    assert_eq!(functions(text), [("long", 6), ("b", 2)]);
}
