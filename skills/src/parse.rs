//! `SKILL.md` to [`Skill`]: bytes in, a skill or the reason why not.
//!
//! **Invariant:** any bytes give an answer in bounded time and memory. What can
//! be used is used and what is odd about it is a warning; what cannot be used is
//! one [`Diagnostic`] that says what to do.
//!
//! **Refuses:** files over [`FILE_BYTES_MAX`], text that is not UTF-8, and front
//! matter without a description. The rules are those of the Agent Skills
//! specification, read leniently: a byte order mark, CRLF, blank lines and HTML
//! comments before the front matter are accepted, and front matter that is not
//! YAML is read line by line. [`Level::Strict`](crate::Level::Strict) accepts
//! what the specification says and no more.

use std::borrow::Cow;
use std::path::Path;

use unicode_normalization::UnicodeNormalization;

use crate::text::Hidden;
use crate::{Code, Diagnostic, Severity, Skill};

mod check;
mod fields;
mod recover;
mod split;

use check::Checker;
use fields::Fields;
use split::{NoFront, split};

/// Largest `SKILL.md`, in bytes. Above it is no text that a context could hold.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// File size that is reported, in bytes: some 16,000 tokens, which is much to
/// load at once.
pub const FILE_BYTES_WARN: u64 = 64 << 10;
/// Largest front matter, in bytes. It bounds the work of the YAML parser.
pub const FRONT_MATTER_BYTES_MAX: usize = 64 << 10;
/// Longest name, in characters (specification).
pub const NAME_CHARS_MAX: usize = 64;
/// Longest description, in characters (specification).
pub const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Longest `compatibility`, in characters (specification).
pub const COMPATIBILITY_CHARS_MAX: usize = 500;

/// A skill and what is odd about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The skill.
    pub skill: Skill,
    /// Findings that leave it usable, all of severity [`Severity::Warning`].
    pub warnings: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether the file is as the specification asks.
    pub fn follows_spec(&self) -> bool {
        !self.warnings.iter().any(Diagnostic::breaks_spec)
    }
}

/// Reads the bytes of the file `file`, whose folder gives the expected name.
/// The file system is not touched.
///
/// # Errors
/// The one [`Diagnostic`], of severity [`Severity::Error`], for which the skill
/// cannot be used.
pub fn parse(bytes: &[u8], file: &Path) -> Result<Parsed, Diagnostic> {
    let mut report = Reporter { file, front_line: 1, warnings: Vec::new() };
    let text = report.text(bytes)?;
    let parts = split(&text).map_err(|fault| report.no_front(fault))?;
    report.front_line = parts.front_line;
    report.front_matter_size(parts.front_matter)?;
    let fields = Fields::read(parts.front_matter).map_err(|error| report.fields(error))?;
    report.file_name();
    report.file_size(bytes.len() as u64);
    report.hidden(Hidden::find(&text));
    if parts.leading {
        let message = "something precedes the front matter".to_owned();
        report.warn(Code::LeadingContent, 1, message, "start the file with the line `---`");
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut checker = Checker { fields: &fields, report: &mut report };
    let name = checker.name(folder.file_name().map(|name| nfkc(&name.to_string_lossy())))?;
    let description = checker.description()?;
    let known = checker.known_fields();
    let extra = checker.extra();
    let skill = Skill {
        id: name.clone(),
        name,
        description,
        body: parts.body.to_owned(),
        body_line: parts.body_line,
        front_matter: parts.front_matter.to_owned(),
        fields: fields.all.iter().map(|field| field.key.clone()).collect(),
        license: known.license,
        compatibility: known.compatibility,
        metadata: known.metadata,
        allowed_tools: known.allowed_tools,
        extra,
        invocable: known.invocable,
        folder: folder.to_owned(),
        file: file.to_owned(),
        root: folder.parent().unwrap_or(Path::new("")).to_owned(),
        parent: None,
        digest: *blake3::hash(bytes).as_bytes(),
    };
    Ok(Parsed { skill, warnings: report.warnings })
}

/// The form in which names are compared (specification).
fn nfkc(text: &str) -> String {
    text.trim().nfkc().collect()
}

/// Makes diagnostics about one file.
struct Reporter<'a> {
    file: &'a Path,
    /// Line of the file on which the front matter's text starts.
    front_line: u32,
    warnings: Vec<Diagnostic>,
}

impl Reporter<'_> {
    fn error(&self, code: Code, line: Option<u32>, message: String, hint: &str) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            path: self.file.to_owned(),
            line,
            column: None,
            message,
            hint: hint.to_owned(),
        }
    }

    /// Reports what leaves the skill usable, on a line of the file.
    fn warn(&mut self, code: Code, line: u32, message: String, hint: &str) {
        let finding = self.error(code, Some(line), message, hint);
        self.warnings.push(Diagnostic { severity: Severity::Warning, ..finding });
    }

    /// Line of the file for a line of the front matter.
    fn line(&self, front_line: u32) -> u32 {
        self.front_line + front_line - 1
    }

    /// The bytes as text with line ends `\n` and without byte order mark.
    fn text<'b>(&self, bytes: &'b [u8]) -> Result<Cow<'b, str>, Diagnostic> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(self.too_large(bytes.len() as u64));
        }
        let line_at = |at: usize| bytes[..at].split(|&byte| byte == b'\n').count() as u32;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to();
            let message = format!("the file is not UTF-8 from byte {at} on");
            self.error(Code::NotUtf8, Some(line_at(at)), message, "save the file as UTF-8")
        })?;
        if let Some(at) = text.find('\0') {
            let message = "the file holds NUL bytes".to_owned();
            let hint = "a skill is a text file: save it as UTF-8 without NUL bytes";
            return Err(self.error(Code::BinaryFile, Some(line_at(at)), message, hint));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let has_crlf = text.contains("\r\n");
        Ok(if has_crlf { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) })
    }

    fn too_large(&self, bytes: u64) -> Diagnostic {
        self.error(
            Code::TooLarge,
            None,
            format!("the file has {bytes} bytes, the limit is {FILE_BYTES_MAX}"),
            "move parts of it to files under `references/`",
        )
    }

    fn file_size(&mut self, bytes: u64) {
        if bytes > FILE_BYTES_WARN {
            let message = format!("the file has {bytes} bytes, more than {FILE_BYTES_WARN}");
            let hint = "move parts of it to files under `references/`: the whole is loaded at once";
            self.warn(Code::TooLarge, 1, message, hint);
        }
    }

    fn front_matter_size(&self, front_matter: &str) -> Result<(), Diagnostic> {
        if front_matter.len() <= FRONT_MATTER_BYTES_MAX {
            return Ok(());
        }
        let bytes = front_matter.len();
        Err(self.error(
            Code::TooLarge,
            Some(self.front_line),
            format!("the front matter has {bytes} bytes, the limit is {FRONT_MATTER_BYTES_MAX}"),
            "move text from the front matter to the body",
        ))
    }

    fn no_front(&self, fault: NoFront) -> Diagnostic {
        let (message, hint) = match fault.code {
            Code::UnterminatedFrontMatter => (
                "no line `---` ends the front matter",
                "put a line that is exactly `---` between the front matter and the instructions",
            ),
            _ => (
                "the file does not start with front matter",
                "start the file with a line `---`, `name:` and `description:`, and a line `---`",
            ),
        };
        self.error(fault.code, Some(fault.line), message.to_owned(), hint)
    }

    fn fields(&self, error: fields::FieldError) -> Diagnostic {
        let hint = match error.code {
            Code::NotAMapping => "write the front matter as lines `key: value`",
            Code::YamlAlias => "write the value out instead of the alias",
            Code::YamlTooDeep | Code::TooLarge => "make the front matter simpler",
            _ => "quote values that hold a colon, a quote or a bracket",
        };
        let line = Some(self.line(error.line));
        let finding = self.error(error.code, line, error.message, hint);
        Diagnostic { column: error.column, ..finding }
    }

    fn file_name(&mut self) {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != crate::SKILL_FILE && name.eq_ignore_ascii_case(crate::SKILL_FILE) {
            let message = format!("the file is called `{name}`");
            let hint = "rename the file to `SKILL.md`: other programs do not find it";
            self.warn(Code::FilenameCase, 1, message, hint);
        }
    }

    fn hidden(&mut self, hidden: Hidden) {
        if let Some((c, line)) = hidden.control {
            let message = format!("there are control characters, first U+{:04X}", c as u32);
            self.warn(Code::ControlChars, line, message, "remove them: a model reads them");
        }
        if let Some((c, line)) = hidden.invisible {
            let message = format!("there are invisible characters, first U+{:04X}", c as u32);
            let hint = "remove them: a model reads what you do not see";
            self.warn(Code::InvisibleChars, line, message, hint);
        }
    }
}

/// The diagnostic for a file that is too large to be read at all.
pub(crate) fn too_large(file: &Path, bytes: u64) -> Diagnostic {
    Reporter { file, front_line: 1, warnings: Vec::new() }.too_large(bytes)
}

#[cfg(test)]
mod tests;
