//! The fields of the front matter, from YAML.
//!
//! **Invariant:** a scalar keeps its spelling (`1.10` stays `1.10`), and the
//! YAML parser runs under a budget, so that no front matter can make it run
//! long or grow large.
//!
//! **Refuses:** anything but a mapping at the top.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Code;

/// YAML events of one front matter: a few hundred are normal.
const EVENTS_MAX: usize = 20_000;
/// Nesting of one front matter: three levels are normal.
const DEPTH_MAX: usize = 32;
/// Aliases and anchors of one front matter: none are normal.
const ALIASES_MAX: usize = 64;

/// What the front matter says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) compatibility: Option<String>,
    /// All keys, in the order written, repetitions included.
    pub(super) keys: Vec<String>,
    /// Whether the YAML was invalid and [`recover`] read it.
    pub(super) recovered: bool,
    /// The front matter's lines that start with a key, for [`Fields::line_of`].
    key_lines: Vec<(String, u32)>,
}

/// Why the fields cannot be read; `line` counts from the front matter's first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    pub(super) code: Code,
    pub(super) line: Option<u32>,
    pub(super) message: String,
}

impl Fields {
    /// Reads the text between the `---` lines.
    pub(super) fn read(front_matter: &str) -> Result<Self, FieldError> {
        let mut fields = match from_yaml(front_matter) {
            Ok(Top::Mapping(fields)) => fields,
            Ok(Top::Other(found)) => {
                return Err(FieldError {
                    code: Code::NotAMapping,
                    line: Some(1),
                    message: format!("the front matter is {found}, not a mapping"),
                });
            }
            Err(error) if error.code == Code::YamlUnparseable => {
                recover(front_matter).ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        fields.key_lines = front_matter
            .lines()
            .enumerate()
            .filter_map(|(at, line)| Some((key_of(line)?.0.to_owned(), at as u32 + 2)))
            .collect();
        Ok(fields)
    }

    /// Line of the file on which a key is, or the front matter's first line.
    pub(super) fn line_of(&self, key: &str) -> u32 {
        self.key_lines.iter().rfind(|(found, _)| found == key).map_or(1, |&(_, line)| line)
    }
}

/// A `key: value` line without indent.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let starts_value = value.is_empty() || value.starts_with([' ', '\t']);
    (!key.is_empty() && key.chars().all(plain) && starts_value).then(|| (key, value.trim()))
}

/// Reads front matter that is not YAML the way its author meant it: a line
/// `key: value` without indent starts a field, and indented lines go on with its
/// text. `None` when any other line is there.
fn recover(front_matter: &str) -> Option<Fields> {
    let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in front_matter.lines() {
        let text = line.trim();
        if text.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with([' ', '\t', '-']) {
            values.last_mut()?.1.push(text);
        } else {
            let (key, value) = key_of(line)?;
            values.push((key, vec![value]));
        }
    }
    let mut fields = Fields { recovered: true, ..Fields::default() };
    for (key, lines) in values {
        let separator = if lines[0].starts_with('|') { "\n" } else { " " };
        let is_block = lines[0].starts_with(['|', '>']);
        let text = lines[usize::from(is_block)..].join(separator);
        let unquoted = ['"', '\'']
            .into_iter()
            .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
            .unwrap_or(&text);
        fields.set(key, Some(unquoted.to_owned()));
        fields.keys.push(key.to_owned());
    }
    Some(fields)
}

impl Fields {
    fn set(&mut self, key: &str, value: Option<String>) {
        match key {
            "name" => self.name = value,
            "description" => self.description = value,
            "compatibility" => self.compatibility = value,
            _ => {}
        }
    }
}

fn from_yaml(front_matter: &str) -> Result<Top, FieldError> {
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_events: EVENTS_MAX,
            max_nodes: EVENTS_MAX,
            max_depth: DEPTH_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_documents: 1,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: EVENTS_MAX,
            max_replay_stack_depth: DEPTH_MAX,
        },
        duplicate_keys: serde_yaml::DuplicateKeyPolicy::PassThrough,
        with_snippet: false,
    };
    // An empty document is an empty mapping that lacks its fields.
    if front_matter.trim().is_empty() {
        return Ok(Top::Mapping(Fields::default()));
    }
    serde_yaml::from_str_with_options(front_matter, options).map_err(|error| {
        let line = error.location().map(|location| location.line() as u32);
        FieldError { code: code_of(&error), line, message: one_line(&error) }
    })
}

fn code_of(error: &serde_yaml::Error) -> Code {
    use serde_yaml::budget::BudgetBreach;
    match error {
        serde_yaml::Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => Code::YamlTooDeep,
            BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => Code::YamlAlias,
            _ => Code::TooLarge,
        },
        serde_yaml::Error::AliasError { .. }
        | serde_yaml::Error::AliasReplayCounterOverflow { .. }
        | serde_yaml::Error::AliasReplayLimitExceeded { .. }
        | serde_yaml::Error::AliasExpansionLimitExceeded { .. }
        | serde_yaml::Error::AliasReplayStackDepthExceeded { .. } => Code::YamlAlias,
        _ => Code::YamlUnparseable,
    }
}

fn one_line(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("the front matter is not valid YAML: {}", words.join(" "))
}

/// What stands at the top of the front matter.
enum Top {
    Mapping(Fields),
    Other(&'static str),
}

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TopVisitor)
    }
}

struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<String>()? {
            if matches!(key.as_str(), "name" | "description" | "compatibility") {
                let value = map.next_value::<Option<String>>()?;
                fields.set(&key, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            fields.keys.push(key);
        }
        Ok(Top::Mapping(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Top, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Top::Other("a list"))
    }

    fn visit_unit<E>(self) -> Result<Top, E> {
        Ok(Top::Mapping(Fields::default()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Top, E> {
        Ok(Top::Other("a text"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Top, E> {
        Ok(Top::Other("a truth value"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Top, E> {
        Ok(Top::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Top, E> {
        Ok(Top::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Top, E> {
        Ok(Top::Other("a number"))
    }
}
