//! `SKILL.md` to [`Skill`]: bytes in, a skill or the reason why not.
//!
//! **Invariant:** any bytes give an answer in bounded time and memory. What can
//! be used is used and what is odd about it is a warning; what cannot be used is
//! one [`Diagnostic`] that says what to do.
//!
//! **Refuses:** files over [`FILE_BYTES_MAX`], text that is not UTF-8, and front
//! matter without a description. The rules are those of the Agent Skills
//! specification, read leniently: the front matter starts and ends with a line
//! that is exactly `---`; a byte order mark, CRLF and blank lines before it are
//! accepted.

use std::path::Path;

use crate::{Code, Diagnostic, Severity, Skill};

mod fields;

use fields::{FieldError, Fields};

/// Largest `SKILL.md`, in bytes. Above it is no text that a context could hold.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest front matter, in bytes. It bounds the work of the YAML parser.
pub const FRONT_MATTER_BYTES_MAX: usize = 64 << 10;
/// Longest name, in characters (specification).
pub const NAME_CHARS_MAX: usize = 64;
/// Longest description, in characters (specification).
pub const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Longest `compatibility`, in characters (specification).
pub const COMPATIBILITY_CHARS_MAX: usize = 500;

/// The fields that the specification knows.
const KNOWN_FIELDS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A skill and what is odd about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The skill.
    pub skill: Skill,
    /// Findings that leave it usable, all of severity [`Severity::Warning`].
    pub warnings: Vec<Diagnostic>,
}

/// Reads the bytes of the file `file`, whose folder gives the expected name.
/// The file system is not touched.
///
/// # Errors
/// The one [`Diagnostic`], of severity [`Severity::Error`], for which the skill
/// cannot be used.
pub fn parse(bytes: &[u8], file: &Path) -> Result<Parsed, Diagnostic> {
    let report = Reporter { file };
    let text = report.text(bytes)?;
    let parts = split(&report, &text)?;
    let fields = Fields::read(parts.front_matter).map_err(|error| report.fields(error))?;
    let mut warnings = Vec::new();
    if parts.leading {
        warnings.push(report.warning(
            Code::LeadingContent,
            1,
            "blank lines before the front matter".to_owned(),
            "start the file with the line `---`",
        ));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let folder_name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = report.name(&fields, folder_name.as_deref(), &mut warnings)?;
    let description = report.description(&fields, &mut warnings)?;
    report.other_fields(&fields, &mut warnings);
    let skill = Skill {
        id: name.clone(),
        name,
        description,
        body: parts.body.to_owned(),
        body_line: parts.body_line,
        front_matter: parts.front_matter.to_owned(),
        fields: fields.keys,
        folder: folder.to_owned(),
        file: file.to_owned(),
        root: folder.parent().unwrap_or(Path::new("")).to_owned(),
        parent: None,
        digest: *blake3::hash(bytes).as_bytes(),
    };
    Ok(Parsed { skill, warnings })
}

/// The parts of a file.
struct Parts<'a> {
    front_matter: &'a str,
    body: &'a str,
    body_line: u32,
    leading: bool,
}

/// Finds the front matter. `text` has line ends `\n` only.
fn split<'a>(report: &Reporter<'_>, text: &'a str) -> Result<Parts<'a>, Diagnostic> {
    let start = text.len() - text.trim_start_matches([' ', '\t', '\n']).len();
    let start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let opening = text[start..].lines().next();
    if opening != Some("---") {
        return Err(report.error(
            Code::NoFrontMatter,
            Some(1),
            "the file does not start with front matter".to_owned(),
            "start the file with a line `---`, `name:` and `description:`, and a line `---`",
        ));
    }
    let inner = (start + "---\n".len()).min(text.len());
    let mut offset = inner;
    for line in text[inner..].split_inclusive('\n') {
        if line.trim_end_matches('\n') == "---" {
            let front_matter = &text[inner..offset];
            let rest = &text[offset + line.len()..];
            // Only whole blank lines go: the indent of the first line may carry meaning.
            let blank = rest.len() - rest.trim_start().len();
            let body_at = rest[..blank].rfind('\n').map_or(0, |newline| newline + 1);
            let body = &rest[body_at..];
            let body_line = 1 + text[..text.len() - body.len()].matches('\n').count() as u32;
            return report.front_matter_size(front_matter).map(|()| Parts {
                front_matter,
                body: if body.trim().is_empty() { "" } else { body },
                body_line,
                leading: start > 0,
            });
        }
        offset += line.len();
    }
    Err(report.error(
        Code::UnterminatedFrontMatter,
        Some(1),
        "no line `---` ends the front matter".to_owned(),
        "put a line that is exactly `---` between the front matter and the instructions",
    ))
}

/// Makes diagnostics about one file.
struct Reporter<'a> {
    file: &'a Path,
}

impl Reporter<'_> {
    fn error(&self, code: Code, line: Option<u32>, message: String, hint: &str) -> Diagnostic {
        let path = self.file.to_owned();
        let hint = hint.to_owned();
        Diagnostic { code, severity: Severity::Error, path, line, message, hint }
    }

    fn warning(&self, code: Code, line: u32, message: String, hint: &str) -> Diagnostic {
        let finding = self.error(code, Some(line), message, hint);
        Diagnostic { severity: Severity::Warning, ..finding }
    }

    /// The bytes as text with line ends `\n` and without byte order mark.
    fn text(&self, bytes: &[u8]) -> Result<String, Diagnostic> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(self.too_large(bytes.len() as u64));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + String::from_utf8_lossy(before).matches('\n').count() as u32;
            self.error(
                Code::NotUtf8,
                Some(line),
                format!("the file is not UTF-8 from byte {} on", error.valid_up_to()),
                "save the file as UTF-8",
            )
        })?;
        if let Some(at) = text.find('\0') {
            let line = 1 + text[..at].matches('\n').count() as u32;
            let message = "the file holds NUL bytes".to_owned();
            let hint = "a skill is a text file: save it as UTF-8 without NUL bytes";
            return Err(self.error(Code::BinaryFile, Some(line), message, hint));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Ok(text.replace("\r\n", "\n"))
    }

    fn too_large(&self, bytes: u64) -> Diagnostic {
        self.error(
            Code::TooLarge,
            None,
            format!("the file has {bytes} bytes, the limit is {FILE_BYTES_MAX}"),
            "move parts of it to files under `references/`",
        )
    }

    fn front_matter_size(&self, front_matter: &str) -> Result<(), Diagnostic> {
        if front_matter.len() <= FRONT_MATTER_BYTES_MAX {
            return Ok(());
        }
        let bytes = front_matter.len();
        Err(self.error(
            Code::TooLarge,
            Some(2),
            format!("the front matter has {bytes} bytes, the limit is {FRONT_MATTER_BYTES_MAX}"),
            "move text from the front matter to the body",
        ))
    }

    fn fields(&self, error: FieldError) -> Diagnostic {
        let hint = match error.code {
            Code::NotAMapping => "write the front matter as lines `key: value`",
            Code::YamlAlias => "write the value out instead of the alias",
            Code::YamlTooDeep | Code::TooLarge => "make the front matter simpler",
            _ => "quote values that hold a colon, a quote or a bracket",
        };
        // The front matter starts on the second line.
        self.error(error.code, error.line.map(|line| line + 1), error.message, hint)
    }

    /// The skill's name, checked.
    fn name(
        &self,
        fields: &Fields,
        folder: Option<&str>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<String, Diagnostic> {
        let line = fields.line_of("name");
        let given = fields.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
        let Some(name) = given.or(folder) else {
            let message = "the skill has no name".to_owned();
            let hint = "add a line `name:` to the front matter";
            return Err(self.error(Code::NameMissing, Some(line), message, hint));
        };
        // A name is a path component of `outer/inner`, and is shown on one line.
        if name.contains(['/', '\\']) || name.contains(char::is_control) || name.starts_with('.') {
            return Err(self.error(
                Code::NameUnsafe,
                Some(line),
                format!("the name `{}` cannot be used", name.escape_debug()),
                "use lower-case letters, digits and hyphens",
            ));
        }
        if given.is_none() {
            let message = format!("no name: the folder's name `{name}` is used");
            let hint = "add a line `name:` to the front matter";
            warnings.push(self.warning(Code::NameMissing, line, message, hint));
        }
        let n_chars = name.chars().count();
        if n_chars > NAME_CHARS_MAX {
            let message =
                format!("the name has {n_chars} characters, {NAME_CHARS_MAX} are allowed");
            warnings.push(self.warning(Code::NameTooLong, line, message, "shorten the name"));
        }
        if !is_spec_name(name) {
            let message = format!("the name `{name}` is not in the form of the specification");
            let hint = "use lower-case letters, digits and single hyphens between them";
            warnings.push(self.warning(Code::NameInvalid, line, message, hint));
        }
        if let Some(folder) = folder.filter(|&folder| folder != name) {
            let message = format!("the name is `{name}`, the folder is `{folder}`");
            let hint = "give the folder and the skill the same name";
            warnings.push(self.warning(Code::NameDirMismatch, line, message, hint));
        }
        Ok(name.to_owned())
    }

    /// The skill's description, checked.
    fn description(
        &self,
        fields: &Fields,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<String, Diagnostic> {
        let line = fields.line_of("description");
        let description = fields.description.as_deref().map_or("", str::trim);
        if description.is_empty() {
            return Err(self.error(
                Code::DescriptionMissing,
                Some(line),
                "the skill has no description".to_owned(),
                "add a line `description:` that says what the skill does and when to use it",
            ));
        }
        let n_chars = description.chars().count();
        if n_chars > DESCRIPTION_CHARS_MAX {
            let message = format!(
                "the description has {n_chars} characters, {DESCRIPTION_CHARS_MAX} are allowed"
            );
            let hint = "shorten it: the catalog shows no more than that";
            warnings.push(self.warning(Code::DescriptionTooLong, line, message, hint));
        }
        Ok(description.to_owned())
    }

    fn other_fields(&self, fields: &Fields, warnings: &mut Vec<Diagnostic>) {
        let n_chars = fields.compatibility.as_deref().map_or(0, |text| text.trim().chars().count());
        if n_chars > COMPATIBILITY_CHARS_MAX {
            let message = format!(
                "`compatibility` has {n_chars} characters, {COMPATIBILITY_CHARS_MAX} are allowed"
            );
            let line = fields.line_of("compatibility");
            warnings.push(self.warning(Code::CompatibilityTooLong, line, message, "shorten it"));
        }
        if fields.recovered {
            let message = "the front matter is not valid YAML and was read line by line".to_owned();
            let hint = "quote values that hold a colon, a quote or a bracket";
            warnings.push(self.warning(Code::YamlRecovered, 2, message, hint));
        }
        for (at, key) in fields.keys.iter().enumerate() {
            let line = fields.line_of(key);
            if fields.keys[..at].contains(key) {
                let message = format!("the key `{key}` occurs twice, the last value counts");
                let hint = "remove one of them";
                warnings.push(self.warning(Code::DuplicateKey, line, message, hint));
            } else if !KNOWN_FIELDS.contains(&key.as_str()) {
                let message = format!("the specification has no field `{key}`");
                let hint = "put fields of your own under `metadata`";
                warnings.push(self.warning(Code::UnknownField, line, message, hint));
            }
        }
    }
}

/// Whether a name has the form of the specification, its length apart.
fn is_spec_name(name: &str) -> bool {
    let allowed = |c: char| c == '-' || (c.is_alphanumeric() && !c.is_uppercase());
    name.chars().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// The diagnostic for a file that is too large to be read at all.
pub(crate) fn too_large(file: &Path, bytes: u64) -> Diagnostic {
    Reporter { file }.too_large(bytes)
}

#[cfg(test)]
mod tests;
