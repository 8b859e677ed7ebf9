//! The fields of the front matter, typed.
//!
//! **Invariant:** a value keeps its spelling, and every key that was written is
//! among the fields, known to the specification or not.
//!
//! **Refuses:** anything but a mapping at the top.

use super::recover::recover;
use crate::Code;
use crate::yaml::{self, Fault, Node, Value};

/// One field: a key and what stands after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: String,
    /// Line of the front matter, counted from 1.
    pub(super) line: u32,
    pub(super) content: Content,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing was given.
    Null,
    /// One text, in its spelling.
    Text(String),
    /// Several texts; `source` is how they were written.
    List { items: Vec<Content>, source: String },
    /// Pairs; `source` is how they were written.
    Map { entries: Vec<(String, Content)>, source: String },
}

impl Content {
    /// The value as one text: lists and mappings as they were written.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Content::Null => None,
            Content::Text(text) => Some(text),
            Content::List { source, .. } | Content::Map { source, .. } => Some(source),
        }
    }

    fn from_yaml(value: Value, text: &str) -> Self {
        let source = || text[value.source.clone()].trim().to_owned();
        match value.node {
            Node::Null { .. } => Content::Null,
            Node::Scalar(text) => Content::Text(text),
            Node::List(items) => {
                let source = source();
                let items = items.into_iter().map(|item| Content::from_yaml(item, text)).collect();
                Content::List { items, source }
            }
            Node::Map(entries) => {
                let source = source();
                let pair = |entry: yaml::Entry| (entry.key, Content::from_yaml(entry.value, text));
                Content::Map { entries: entries.into_iter().map(pair).collect(), source }
            }
        }
    }
}

/// What the front matter says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// All fields, in the order written, repetitions included.
    pub(super) all: Vec<Field>,
    /// The line and the fault for which [`recover`] read it instead.
    pub(super) recovered: Option<(u32, String)>,
    /// Whether anchors or aliases occur.
    pub(super) has_anchors: bool,
}

/// Why the fields cannot be read; `line` counts from the front matter's first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    pub(super) code: Code,
    pub(super) line: u32,
    pub(super) column: Option<u32>,
    pub(super) message: String,
}

impl Fields {
    /// Reads the text between the `---` lines.
    pub(super) fn read(front_matter: &str) -> Result<Self, FieldError> {
        let error = match from_yaml(front_matter) {
            Ok(fields) => return Ok(fields),
            Err(error) => error,
        };
        if error.code != Code::YamlUnparseable {
            return Err(error);
        }
        match recover(front_matter) {
            Some(all) => {
                Ok(Fields { all, recovered: Some((error.line, error.message)), has_anchors: false })
            }
            None => Err(error),
        }
    }

    /// The field of a key; of several the last, as YAML readers do.
    pub(super) fn get(&self, key: &str) -> Option<&Field> {
        self.all.iter().rfind(|field| field.key == key)
    }

    /// Line of the front matter on which a key is, or the first.
    pub(super) fn line_of(&self, key: &str) -> u32 {
        self.get(key).map_or(1, |field| field.line)
    }
}

/// Reads front matter that is YAML.
pub(super) fn from_yaml(front_matter: &str) -> Result<Fields, FieldError> {
    let document = yaml::read(front_matter).map_err(|error| FieldError {
        code: match error.fault {
            Fault::Syntax => Code::YamlUnparseable,
            Fault::TooDeep => Code::YamlTooDeep,
            Fault::Aliases => Code::YamlAlias,
            Fault::TooLarge => Code::TooLarge,
        },
        line: error.line,
        column: Some(error.column),
        message: format!("the front matter cannot be read as YAML: {}", error.message),
    })?;
    let other = |found: &str| FieldError {
        code: Code::NotAMapping,
        line: 1,
        column: None,
        message: format!("the front matter is {found}, not a mapping"),
    };
    let entries = match document.root.node {
        // An empty text is an empty mapping that lacks its fields.
        Node::Null { spelling } if spelling.is_empty() => Vec::new(),
        Node::Null { .. } | Node::Scalar(_) => return Err(other("a text")),
        Node::List(_) => return Err(other("a list")),
        Node::Map(entries) => entries,
    };
    let all = entries.into_iter().map(|entry| Field {
        key: entry.key,
        line: entry.line,
        content: Content::from_yaml(entry.value, front_matter),
    });
    Ok(Fields { all: all.collect(), recovered: None, has_anchors: document.has_anchors })
}

/// The tools of `allowed-tools`, and how the list departs from the
/// specification's words apart by blanks.
pub(super) fn tools(content: &Content) -> (Vec<String>, Option<Code>) {
    match content {
        Content::Null => (Vec::new(), None),
        Content::Text(text) => {
            let (tools, has_commas) = split_tools(text);
            (tools, has_commas.then_some(Code::AllowedToolsCommas))
        }
        Content::List { items, .. } => {
            let texts = items.iter().filter_map(Content::text).map(str::trim);
            let tools = texts.filter(|text| !text.is_empty()).map(str::to_owned).collect();
            (tools, Some(Code::AllowedToolsList))
        }
        Content::Map { source, .. } => (vec![source.clone()], Some(Code::AllowedToolsList)),
    }
}

/// Splits at blanks and commas that are outside parentheses: `Bash(git add:*)`
/// is one tool.
fn split_tools(text: &str) -> (Vec<String>, bool) {
    let mut tools = vec![String::new()];
    let mut depth = 0_u32;
    let mut has_commas = false;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (c == ',' || c.is_whitespace()) {
            has_commas |= c == ',';
            tools.push(String::new());
        } else if let Some(tool) = tools.last_mut() {
            tool.push(c);
        }
    }
    tools.retain(|tool| !tool.is_empty());
    (tools, has_commas)
}

/// The pairs of `metadata` as texts, and the key of the first that is none; the
/// empty key when the whole is no mapping.
pub(super) fn metadata(content: &Content) -> (Vec<(String, String)>, Option<String>) {
    let entries = match content {
        Content::Null => return (Vec::new(), None),
        Content::Map { entries, .. } => entries,
        Content::Text(_) | Content::List { .. } => return (Vec::new(), Some(String::new())),
    };
    let is_nested =
        |content: &Content| matches!(content, Content::List { .. } | Content::Map { .. });
    let nested = entries.iter().find(|(_, content)| is_nested(content));
    let pair = |(key, content): &(String, Content)| {
        (key.clone(), content.text().unwrap_or_default().trim().to_owned())
    };
    (entries.iter().map(pair).collect(), nested.map(|(key, _)| key.clone()))
}

/// A truth value in any of YAML's spellings.
pub(super) fn flag(content: &Content) -> Option<bool> {
    match content.text()?.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
