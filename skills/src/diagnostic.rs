//! What was found wrong with a skill: a code for programs, words for people.
//!
//! **Invariant:** every diagnostic says where, what and what to do.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The skill is usable.
    Warning,
    /// The skill was left out.
    Error,
}

impl Severity {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Declares the codes once, with their names.
macro_rules! codes {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// What kind of finding it is. Names are stable: programs match on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])+ $variant,)+ }

        impl Code {
            /// The name used in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)+ }
            }
        }
    };
}

codes! {
    /// The front matter was not valid YAML and was read line by line instead.
    YamlRecovered = "yaml-recovered",
    /// The front matter is not valid YAML.
    YamlUnparseable = "yaml-unparseable",
    /// Aliases of the front matter pass the budget.
    YamlAlias = "yaml-alias",
    /// The front matter is nested deeper than the budget.
    YamlTooDeep = "yaml-too-deep",
    /// The file does not start with a line `---`.
    NoFrontMatter = "no-frontmatter",
    /// No line `---` ends the front matter.
    UnterminatedFrontMatter = "unterminated-frontmatter",
    /// Something precedes the front matter.
    LeadingContent = "leading-content",
    /// The front matter is not a mapping of keys to values.
    NotAMapping = "not-a-mapping",
    /// The file is not UTF-8.
    NotUtf8 = "not-utf8",
    /// The file holds NUL bytes.
    BinaryFile = "binary-file",
    /// The file could not be read.
    Io = "io",
    /// The file or its front matter passes a size limit.
    TooLarge = "too-large",
    /// There is no description.
    DescriptionMissing = "description-missing",
    /// The description is longer than the specification allows.
    DescriptionTooLong = "description-too-long",
    /// There is no name: the folder's name is used.
    NameMissing = "name-missing",
    /// The name cannot be used as an identifier at all.
    NameUnsafe = "name-unsafe",
    /// The name has characters that the specification does not allow.
    NameInvalid = "name-invalid",
    /// The name is longer than the specification allows.
    NameTooLong = "name-too-long",
    /// The name differs from the folder's name.
    NameDirMismatch = "name-dir-mismatch",
    /// The specification does not know this field.
    UnknownField = "unknown-field",
    /// A key occurs twice: the last value counts.
    DuplicateKey = "duplicate-key",
    /// The field `compatibility` is longer than the specification allows.
    CompatibilityTooLong = "compatibility-too-long",
    /// The file's name differs from `SKILL.md` in case.
    FilenameCase = "filename-case",
    /// Another skill has the same identifier and comes first.
    Shadowed = "shadowed",
    /// Folders below the depth or count limit were not searched.
    DepthLimit = "depth-limit",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One finding about one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// What kind of finding it is.
    pub code: Code,
    /// Whether the skill is still usable.
    pub severity: Severity,
    /// The file or folder it is about.
    pub path: PathBuf,
    /// Line of the file, counted from 1, where one can be named.
    pub line: Option<u32>,
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {} [{}]", self.message, self.code)
    }
}
