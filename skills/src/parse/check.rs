//! The rules of the specification, field by field.
//!
//! **Invariant:** a rule that is broken is a warning on the field's line; only a
//! skill that could not be named or described is refused.

use std::collections::HashSet;

use super::fields::{Content, Fields, flag, metadata, tools};
use super::{COMPATIBILITY_CHARS_MAX, DESCRIPTION_CHARS_MAX, NAME_CHARS_MAX, Reporter, nfkc};
use crate::skill::Invocable;
use crate::{Code, Diagnostic};

/// The fields that the specification knows.
const KNOWN_FIELDS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// Checks the fields of one file.
pub(super) struct Checker<'c, 'r> {
    pub(super) fields: &'c Fields,
    pub(super) report: &'c mut Reporter<'r>,
}

/// The fields beside name and description that have a meaning here.
pub(super) struct Known {
    pub(super) license: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) allowed_tools: Vec<String>,
    pub(super) invocable: Invocable,
}

impl Checker<'_, '_> {
    fn content(&self, key: &str) -> &Content {
        self.fields.get(key).map_or(&Content::Null, |field| &field.content)
    }

    /// The text of a field, trimmed; `None` when there is nothing in it.
    fn text(&self, key: &str) -> Option<String> {
        let text = self.content(key).text()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn line_of(&self, key: &str) -> u32 {
        self.report.line(self.fields.line_of(key))
    }

    fn warn(&mut self, code: Code, key: &str, message: String, hint: &str) {
        let line = self.line_of(key);
        self.report.warn(code, line, message, hint);
    }

    /// The skill's name in form NFKC. `folder` is in that form too.
    pub(super) fn name(&mut self, folder: Option<String>) -> Result<String, Diagnostic> {
        let line = self.line_of("name");
        let given = self.text("name").map(|name| nfkc(&name)).filter(|name| !name.is_empty());
        let is_given = given.is_some();
        let Some(name) = given.or(folder.clone()) else {
            let message = "the skill has no name".to_owned();
            let hint = "add a line `name:` to the front matter";
            return Err(self.report.error(Code::NameMissing, Some(line), message, hint));
        };
        // A name is a path component of `outer/inner`, and is shown on one line.
        if name.contains(['/', '\\']) || name.contains(char::is_control) || name.starts_with('.') {
            return Err(self.report.error(
                Code::NameUnsafe,
                Some(line),
                format!("the name `{}` cannot be used", name.escape_debug()),
                "use lower-case letters, digits and hyphens",
            ));
        }
        if !is_given {
            let message = format!("no name: the folder's name `{name}` is used");
            self.warn(Code::NameMissing, "name", message, "add a line `name:` to the front matter");
        }
        let n_chars = name.chars().count();
        if n_chars > NAME_CHARS_MAX {
            let message =
                format!("the name has {n_chars} characters, {NAME_CHARS_MAX} are allowed");
            self.warn(Code::NameTooLong, "name", message, "shorten the name");
        }
        if !is_spec_name(&name) {
            let message = format!("the name `{name}` is not in the form of the specification");
            let hint = "use lower-case letters, digits and single hyphens between them";
            self.warn(Code::NameInvalid, "name", message, hint);
        }
        if let Some(folder) = folder.filter(|folder| *folder != name) {
            let message = format!("the name is `{name}`, the folder is `{folder}`");
            let hint = "give the folder and the skill the same name";
            self.warn(Code::NameDirMismatch, "name", message, hint);
        }
        Ok(name)
    }

    /// The skill's description.
    pub(super) fn description(&mut self) -> Result<String, Diagnostic> {
        let Some(description) = self.text("description") else {
            return Err(self.report.error(
                Code::DescriptionMissing,
                Some(self.line_of("description")),
                "the skill has no description".to_owned(),
                "add a line `description:` that says what the skill does and when to use it",
            ));
        };
        let n_chars = description.chars().count();
        if n_chars > DESCRIPTION_CHARS_MAX {
            let message = format!(
                "the description has {n_chars} characters, {DESCRIPTION_CHARS_MAX} are allowed"
            );
            let hint = "shorten it: the catalog shows no more than that";
            self.warn(Code::DescriptionTooLong, "description", message, hint);
        }
        if matches!(self.content("description"), Content::List { .. } | Content::Map { .. }) {
            let message = "the description is no text and is used as it was written".to_owned();
            let hint = "put the description in quotation marks";
            self.warn(Code::YamlRecovered, "description", message, hint);
        }
        Ok(description)
    }

    /// The other fields that have a meaning here.
    pub(super) fn known_fields(&mut self) -> Known {
        let compatibility = self.text("compatibility");
        let n_chars = compatibility.as_deref().map_or(0, |text| text.chars().count());
        if n_chars > COMPATIBILITY_CHARS_MAX {
            let message = format!(
                "`compatibility` has {n_chars} characters, {COMPATIBILITY_CHARS_MAX} are allowed"
            );
            self.warn(Code::CompatibilityTooLong, "compatibility", message, "shorten it");
        }
        let (metadata, not_text) = metadata(self.content("metadata"));
        if let Some(key) = not_text {
            let message = if key.is_empty() {
                "`metadata` is no mapping of names to texts and is left out".to_owned()
            } else {
                format!("`{key}` of `metadata` is no text and is kept as it was written")
            };
            let hint = "write `metadata` as lines `name: \"text\"`";
            self.warn(Code::MetadataNonstring, "metadata", message, hint);
        }
        let (allowed_tools, oddity) = tools(self.content("allowed-tools"));
        if let Some(code) = oddity {
            let found = if code == Code::AllowedToolsCommas { "commas" } else { "a list" };
            let message = format!("`allowed-tools` has {found} instead of blanks");
            let hint = "write the tools on one line with blanks between them";
            self.warn(code, "allowed-tools", message, hint);
        }
        Known {
            license: self.text("license"),
            compatibility,
            metadata,
            allowed_tools,
            invocable: Invocable {
                by_model: !self.flag("disable-model-invocation", false),
                by_user: self.flag("user-invocable", true),
            },
        }
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.content(key) {
            Content::Null => default,
            content => flag(content).unwrap_or_else(|| {
                let message = format!("`{key}` is neither true nor false and is left out");
                self.warn(Code::BadFlagValue, key, message, "write `true` or `false`");
                default
            }),
        }
    }

    /// Reports what concerns all fields, and gives those that the specification
    /// does not know.
    pub(super) fn extra(&mut self) -> Vec<(String, String)> {
        if let Some((line, message)) = &self.fields.recovered {
            let line = self.report.line(*line);
            let message = format!("{message}; it was read line by line");
            let hint = "quote values that hold a colon, a quote or a bracket";
            self.report.warn(Code::YamlRecovered, line, message, hint);
        }
        if self.fields.has_anchors {
            let message = "the front matter uses anchors or aliases".to_owned();
            let line = self.report.line(1);
            let hint = "write the values out: other programs refuse them";
            self.report.warn(Code::YamlAlias, line, message, hint);
        }
        let mut extra = Vec::new();
        let mut seen = HashSet::new();
        for field in &self.fields.all {
            let (key, line) = (&field.key, self.report.line(field.line));
            let is_known = KNOWN_FIELDS.contains(&key.as_str());
            if !seen.insert(key) {
                let message = format!("the key `{key}` occurs twice, the last value counts");
                self.report.warn(Code::DuplicateKey, line, message, "remove one of them");
            } else if !is_known {
                let message = format!("the specification has no field `{key}`");
                let hint = "put fields of your own under `metadata`";
                self.report.warn(Code::UnknownField, line, message, hint);
            }
            if !is_known {
                extra.push((key.clone(), field.content.text().unwrap_or_default().to_owned()));
            }
        }
        extra
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
