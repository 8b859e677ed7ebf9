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
    /// A value of `metadata` is no text, or `metadata` is no mapping.
    MetadataNonstring = "metadata-nonstring",
    /// The field `allowed-tools` has commas where the specification has blanks.
    AllowedToolsCommas = "allowed-tools-commas",
    /// The field `allowed-tools` is a list where the specification has a text.
    AllowedToolsList = "allowed-tools-list",
    /// A field that is a truth value has another value: it is as if not there.
    BadFlagValue = "bad-flag-value",
    /// There are invisible characters that no script needs.
    InvisibleChars = "invisible-chars",
    /// There are control characters.
    ControlChars = "control-chars",
    /// The field `compatibility` is longer than the specification allows.
    CompatibilityTooLong = "compatibility-too-long",
    /// The file's name differs from `SKILL.md` in case.
    FilenameCase = "filename-case",
    /// Another skill has the same identifier and comes first.
    Shadowed = "shadowed",
    /// A hidden folder holds skills, and is not searched.
    HiddenFolder = "hidden-folder",
    /// An ignore file names a folder that holds a skill.
    Ignored = "ignored",
    /// A link of the body leads to a file that is not there.
    LinkBroken = "link-broken",
    /// A link of the body leads out of the skill.
    PathEscape = "path-escape",
    /// A project's skills are not read, since its folder is not trusted.
    Untrusted = "untrusted",
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
    /// Column of the line in characters, counted from 1, where one can be named.
    pub column: Option<u32>,
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// How much is asked of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// What can be used is used, and what is odd about it is a warning.
    #[default]
    Lenient,
    /// What the specification does not allow is an error.
    Strict,
}

impl Diagnostic {
    /// Whether the finding breaks the Agent Skills specification. Other findings
    /// are about form: the specification allows what they are about, or is silent.
    pub fn breaks_spec(&self) -> bool {
        match self.code {
            _ if self.severity == Severity::Error => true,
            Code::YamlRecovered
            | Code::YamlAlias
            | Code::LeadingContent
            | Code::DescriptionTooLong
            | Code::NameMissing
            | Code::NameInvalid
            | Code::NameTooLong
            | Code::NameDirMismatch
            | Code::UnknownField
            | Code::DuplicateKey
            | Code::MetadataNonstring
            | Code::CompatibilityTooLong => true,
            // The reference implementation takes `skill.md` too, and no other spelling.
            Code::FilenameCase => self.path.file_name().is_none_or(|name| name != "skill.md"),
            _ => false,
        }
    }

    /// The same finding at a level: an error where the level does not allow it.
    #[must_use]
    pub fn at(mut self, level: Level) -> Self {
        if level == Level::Strict && self.breaks_spec() {
            self.severity = Severity::Error;
        }
        self
    }
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
