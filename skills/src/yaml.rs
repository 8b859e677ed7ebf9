//! YAML to a small tree that keeps spelling and positions.
//!
//! **Invariant:** time and memory are bounded by the length of the text: nesting,
//! nodes and what aliases add are counted, and the first one over its limit ends
//! the reading. A scalar keeps its spelling (`1.10` stays `1.10`).
//!
//! **Refuses:** more than one document, and aliases that multiply.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

/// Nodes of one text, those that aliases repeat included: a few hundred are normal.
const NODES_MAX: usize = 20_000;
/// Nesting of one text: three levels are normal.
const DEPTH_MAX: usize = 32;
/// Bytes that aliases repeat: as much as the longest front matter.
const ALIAS_BYTES_MAX: usize = 64 << 10;

/// A node with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) node: Node,
    /// Bytes of the text that it was read from; an alias' own bytes for an alias.
    pub(crate) source: Range<usize>,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// Nothing, `~` or `null`, unquoted. `spelling` is what was written.
    Null { spelling: String },
    /// A text, whatever it may look like.
    Scalar(String),
    /// A list.
    List(Vec<Value>),
    /// A mapping, repetitions of keys included.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Line of the key, counted from 1.
    pub(crate) line: u32,
    pub(crate) value: Value,
}

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) root: Value,
    /// Whether anchors or aliases occur.
    pub(crate) has_anchors: bool,
}

/// Why a text cannot be read. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) fault: Fault,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

/// What kind of fault ended the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The text is not YAML.
    Syntax,
    /// Nested deeper than the limit.
    TooDeep,
    /// Aliases repeat more than the limit.
    Aliases,
    /// More nodes than the limit.
    TooLarge,
}

/// Reads a text of one document.
pub(crate) fn read(text: &str) -> Result<Document, YamlError> {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
        block_scalar_eof_without_line_feed: false,
    };
    let mut builder = Builder { text, ..Builder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        builder.event(event, span)?;
    }
    let root = builder.root.unwrap_or_else(|| Value::null(0..0));
    Ok(Document { root, has_anchors: builder.has_anchors })
}

impl Value {
    fn null(source: Range<usize>) -> Self {
        Value { node: Node::Null { spelling: String::new() }, source }
    }

    /// Nodes in this one, itself included.
    fn n_nodes(&self) -> usize {
        1 + match &self.node {
            Node::Null { .. } | Node::Scalar(_) => 0,
            Node::List(items) => items.iter().map(Value::n_nodes).sum(),
            Node::Map(entries) => entries.iter().map(|entry| 1 + entry.value.n_nodes()).sum(),
        }
    }

    /// Bytes of all texts in this one.
    fn n_bytes(&self) -> usize {
        match &self.node {
            Node::Null { spelling } => spelling.len(),
            Node::Scalar(text) => text.len(),
            Node::List(items) => items.iter().map(Value::n_bytes).sum(),
            Node::Map(entries) => {
                entries.iter().map(|entry| entry.key.len() + entry.value.n_bytes()).sum()
            }
        }
    }
}

fn syntax(error: &ScanError) -> YamlError {
    let fault = match error.kind() {
        ErrorKind::RecursionLimitExceeded => Fault::TooDeep,
        _ => Fault::Syntax,
    };
    let mark = error.marker();
    let message = error.kind().to_string();
    YamlError { fault, line: mark.line() as u32, column: mark.col() as u32 + 1, message }
}

/// An unfinished list or mapping.
struct Frame {
    node: Node,
    /// The key whose value comes next, with its line.
    key: Option<(String, u32)>,
    start: usize,
    anchor: usize,
}

#[derive(Default)]
struct Builder<'t> {
    text: &'t str,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    has_anchors: bool,
    n_nodes: usize,
    n_alias_bytes: usize,
    n_documents: usize,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let range = span.byte_range().unwrap_or(0..0);
        match event {
            Event::DocumentStart(..) => {
                self.n_documents += 1;
                if self.n_documents > 1 {
                    return Err(fail(Fault::Syntax, span, "more than one document"));
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let text = text.into_owned();
                let node = if is_null { Node::Null { spelling: text } } else { Node::Scalar(text) };
                self.finish(Value { node, source: range }, anchor, span)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(Node::List(Vec::new()), anchor, range.start, span)?;
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(Node::Map(Vec::new()), anchor, range.start, span)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.frames.pop() {
                    let source = frame.start..range.end.max(frame.start);
                    self.finish(Value { node: frame.node, source }, frame.anchor, span)?;
                }
            }
            Event::Alias(id) => self.alias(id, range, span)?,
            _ => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        node: Node,
        anchor: usize,
        start: usize,
        span: Span,
    ) -> Result<(), YamlError> {
        // Flow and block nesting are limited apart, and must not add up.
        if self.frames.len() >= DEPTH_MAX {
            return Err(fail(Fault::TooDeep, span, "nested too deep"));
        }
        self.frames.push(Frame { node, key: None, start, anchor });
        Ok(())
    }

    fn alias(&mut self, id: usize, range: Range<usize>, span: Span) -> Result<(), YamlError> {
        self.has_anchors = true;
        let value = match self.anchors.get(&id) {
            Some(value) => Value { node: value.node.clone(), source: range },
            // An alias within the node that it names.
            None => return Err(fail(Fault::Aliases, span, "an alias repeats itself")),
        };
        self.charge_alias(&value, span)?;
        self.finish(value, 0, span)
    }

    fn charge_alias(&mut self, value: &Value, span: Span) -> Result<(), YamlError> {
        self.n_nodes += value.n_nodes();
        self.n_alias_bytes += value.n_bytes();
        if self.n_nodes > NODES_MAX || self.n_alias_bytes > ALIAS_BYTES_MAX {
            return Err(fail(Fault::Aliases, span, "aliases repeat too much"));
        }
        Ok(())
    }

    /// Puts a whole node where it belongs.
    fn finish(&mut self, value: Value, anchor: usize, span: Span) -> Result<(), YamlError> {
        self.n_nodes += 1;
        if self.n_nodes > NODES_MAX {
            return Err(fail(Fault::TooLarge, span, "too many values"));
        }
        if anchor > 0 {
            self.has_anchors = true;
            self.charge_alias(&value, span)?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.frames.last_mut() {
            None => self.root = Some(value),
            Some(Frame { node: Node::Map(entries), key, .. }) => {
                if let Some((key, line)) = key.take() {
                    entries.push(Entry { key, line, value });
                    return Ok(());
                }
                let text = match value.node {
                    Node::Scalar(text) | Node::Null { spelling: text } => text,
                    _ => self.text[value.source].trim().to_owned(),
                };
                *key = Some((text, span.start.line() as u32));
            }
            Some(Frame { node: Node::List(items), .. }) => items.push(value),
            Some(_) => unreachable!("only lists and mappings are opened"),
        }
        Ok(())
    }
}

fn fail(fault: Fault, span: Span, message: &str) -> YamlError {
    let message = message.to_owned();
    let (line, column) = (span.start.line() as u32, span.start.col() as u32 + 1);
    YamlError { fault, line, column, message }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(text: &str) -> Vec<(String, Node)> {
        match read(text).expect("it is YAML").root.node {
            Node::Map(entries) => entries.into_iter().map(|e| (e.key, e.value.node)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn scalar(text: &str) -> Node {
        Node::Scalar(text.to_owned())
    }

    #[test]
    fn scalars_keep_their_spelling() {
        let text = "a: 1.10\nb: 007\nc: true\nd: 2026-01-05\ne: 12:30\nf: \"~\"\n";
        let values: Vec<Node> = map(text).into_iter().map(|(_, node)| node).collect();
        let expected = ["1.10", "007", "true", "2026-01-05", "12:30", "~"].map(scalar);
        assert_eq!(values, expected);
        assert!(matches!(map("a: ~")[0].1, Node::Null { .. }));
    }

    #[test]
    fn sources_are_what_was_written() {
        let text = "hint: [a, 'b c']\nmore:\n  - x\n";
        let Node::Map(entries) = read(text).unwrap().root.node else { panic!() };
        assert_eq!(&text[entries[0].value.source.clone()], "[a, 'b c']");
        assert_eq!((entries[1].line, text[entries[1].value.source.clone()].trim()), (2, "- x"));
    }

    #[test]
    fn aliases_are_resolved_and_counted() {
        let document = read("a: &x one\nb: *x\n").unwrap();
        assert!(document.has_anchors);
        assert_eq!(map("a: &x one\nb: *x\n")[1].1, scalar("one"));
        assert_eq!(read("a: *x").unwrap_err().fault, Fault::Syntax);
        assert_eq!(read("a: &x [*x]").unwrap_err().fault, Fault::Aliases);
        let long = format!("a: &x {}\nb: [{}]", "y".repeat(9000), "*x,".repeat(9));
        assert_eq!(read(&long).unwrap_err().fault, Fault::Aliases);
    }

    #[test]
    fn limits_hold() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let nested = |n: usize| format!("x: {}1{}", open.repeat(n), close.repeat(n));
            assert!(read(&nested(DEPTH_MAX - 1)).is_ok());
            for n in [DEPTH_MAX, 5000] {
                assert_eq!(read(&nested(n)).unwrap_err().fault, Fault::TooDeep, "{n}");
            }
        }
        let many = format!("x: [{}]", "1,".repeat(NODES_MAX + 1));
        assert_eq!(read(&many).unwrap_err().fault, Fault::TooLarge);
    }

    proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "[ -~\n\t&*\\[{:\"'|>#é]{0,200}") {
            if let Ok(document) = read(&text) {
                prop_assert!(document.root.source.end <= text.len());
            }
        }
    }
}
