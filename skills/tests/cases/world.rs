//! The files of a case, and the skills found among them.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use skillgraft_skills::{
    Catalog, ImportError, ImportLimits, Root, ScanOptions, Scanner, SkillSession, import,
};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// What there is, and what became of it.
pub(crate) struct World {
    _folder: tempfile::TempDir,
    pub(crate) base: PathBuf,
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) scanner: Scanner,
    pub(crate) catalog: Catalog,
    pub(crate) session: SkillSession,
    /// The texts behind the static prefix, each with its address.
    pub(crate) tail: Vec<(String, String)>,
    pub(crate) installed: Option<Result<(), ImportError>>,
    /// What importing and scanning took.
    pub(crate) took: Duration,
    /// What they added to the memory's peak, where it can be told.
    pub(crate) peak_bytes: Option<u64>,
    home: Option<PathBuf>,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            std::env::set_current_dir(home).unwrap();
        }
    }
}

impl World {
    /// Lays out the files of a case and scans them.
    pub(crate) fn build(case: &Value) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap().join("w");
        let main = base.join("skills");
        fs::create_dir_all(&main).unwrap();
        let mut zip = None;
        for (path, content) in files(case)? {
            match path.as_str() {
                "zip" => zip = Some(content),
                "gen" => generate(&main, &content),
                path => lay(&place(&base, path), &content)?,
            }
        }
        let names = case["roots"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut roots: Vec<PathBuf> = names.map(|name| place(&base, name)).collect();
        if roots.is_empty() {
            roots.push(main.clone());
        }
        // Where the process stands must not matter; some case may say otherwise.
        let working = base.join("@cwd");
        let home = working.is_dir().then(|| {
            let home = std::env::current_dir().unwrap();
            std::env::set_current_dir(&working).unwrap();
            home
        });
        let archive = match (case["archive"].as_str(), zip) {
            (Some(name), Some(zip)) => {
                let file = base.join(name);
                fs::write(&file, pack(&zip)?).unwrap();
                Some(file)
            }
            (None, None) => None,
            _ => return Err("an archive needs a name and `zip`".to_owned()),
        };
        let before = peak_bytes();
        let started = Instant::now();
        let installed =
            archive.map(|file| import(&file, &main, &ImportLimits::default()).map(drop));
        let given = roots.iter().map(|root| Root::given(root)).collect();
        let mut scanner = Scanner::new(given, ScanOptions::default());
        let catalog = scanner.scan().map_err(|error| error.to_string())?;
        let took = started.elapsed();
        let peak_bytes = before.and_then(|before| Some(peak_bytes()?.saturating_sub(before)));
        let session = SkillSession::new(catalog.clone(), catalog.render());
        Ok(World {
            _folder: folder,
            base,
            roots,
            scanner,
            catalog,
            session,
            tail: Vec::new(),
            installed,
            took,
            peak_bytes,
            home,
        })
    }

    /// Where a path of the case is.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        place(&self.base, path)
    }

    /// All that the model has been shown.
    pub(crate) fn prompt(&self) -> String {
        let tail: String = self.tail.iter().map(|(_, text)| text.as_str()).collect();
        format!("{}{tail}", self.session.catalog_text())
    }
}

/// The peak of the memory so far, after setting it back where that is possible.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    fs::write("/proc/self/clear_refs", "5").ok()?;
    Some(kib * 1024)
}

/// Paths and contents of a case, in order.
fn files(case: &Value) -> Result<Vec<(String, Value)>, String> {
    if let Some(files) = case["files"].as_object() {
        return Ok(files.iter().map(|(path, content)| (path.clone(), content.clone())).collect());
    }
    let path = match (case["dir"].as_str(), case["file"].as_str()) {
        (Some(dir), Some(file)) => format!("{dir}/{file}"),
        _ => return Err("the case has no files".to_owned()),
    };
    let content = match (&case["input"], &case["input_b64"]) {
        (text @ Value::String(_), _) => text.clone(),
        (_, base64 @ Value::String(_)) => serde_json::json!({ "b64": base64 }),
        _ => return Err("the case has no input".to_owned()),
    };
    Ok(vec![(path, content)])
}

/// Where a path is: below the root, outside it, or below a root of its own.
fn place(base: &Path, path: &str) -> PathBuf {
    if path.starts_with('@') {
        return base.join(path);
    }
    match path.strip_prefix("../") {
        Some(outside) => base.join(outside),
        None => base.join("skills").join(path),
    }
}

fn lay(file: &Path, content: &Value) -> Result<(), String> {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    if let Some(target) = content["symlink"].as_str() {
        #[cfg(unix)]
        std::os::unix::fs::symlink(target, file).unwrap();
        #[cfg(not(unix))]
        return Err(format!("no link to {target} can be made here"));
        return Ok(());
    }
    fs::write(file, bytes(content)?).unwrap();
    if let Some(mode) = content["mode"]
        .as_str()
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .or_else(|| content["mode"].as_u64().map(|mode| mode as u32))
    {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
        #[cfg(not(unix))]
        let _ = mode;
    }
    Ok(())
}

/// The bytes that a content describes.
fn bytes(content: &Value) -> Result<Vec<u8>, String> {
    let repeated = |pair: &Value| -> Option<String> {
        Some(pair[0].as_str()?.repeat(pair[1].as_u64()? as usize))
    };
    if let Some(text) = content.as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    if let Some(text) = content["b64"].as_str() {
        return Ok(from_base64(text));
    }
    let mut text = content["text"].as_str().unwrap_or_default().to_owned();
    for key in ["repeat", "append_repeat"] {
        text.push_str(&repeated(&content[key]).unwrap_or_default());
    }
    let is_known = ["text", "repeat", "append_repeat"].iter().any(|key| !content[key].is_null());
    if is_known { Ok(text.into_bytes()) } else { Err(format!("no content: {content}")) }
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut n_bits) = (0_u32, 0);
    for digit in text.chars().filter_map(|c| DIGITS.find(c)) {
        bits = (bits << 6) | digit as u32;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((bits >> n_bits) as u8);
        }
    }
    bytes
}

/// Many skills with numbered names, such as `s-%02d`.
fn generate(root: &Path, spec: &Value) {
    let (pattern, description) =
        (spec["name"].as_str().unwrap(), spec["description"].as_str().unwrap());
    let (before, rest) = pattern.split_once('%').expect("the name has a number");
    let (width, after) = rest.split_once('d').expect("the number is decimal");
    let width = width.trim_start_matches('0').parse().unwrap_or(0);
    for n in 0..spec["count"].as_u64().unwrap() {
        let name = format!("{before}{n:0width$}{after}");
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nBody of {name}.\n");
        let folder = root.join(&name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }
}

fn pack(entries: &Value) -> Result<Vec<u8>, String> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for (name, content) in entries.as_object().ok_or("`zip` is no object")? {
        if let Some(target) = content["symlink"].as_str() {
            writer.add_symlink(name.as_str(), target, options).map_err(|e| e.to_string())?;
            continue;
        }
        writer.start_file(name.as_str(), options).map_err(|error| error.to_string())?;
        writer.write_all(&bytes(content)?).map_err(|error| error.to_string())?;
    }
    Ok(writer.finish().map_err(|error| error.to_string())?.into_inner())
}
