//! Front matter that is not YAML, read the way its author meant it.
//!
//! **Invariant:** a line `key: value` without indent starts a field, and what is
//! indented below goes on with it. A field that is YAML by itself is read as
//! YAML, so that one broken line does not take the others along; only a broken
//! one is taken as text.
//!
//! **Refuses:** text with any other line: nothing is guessed.

use super::fields::{Content, Field, from_yaml};

/// Fields whose value is one text: lines below them are never pairs.
const TEXTS: [&str; 4] = ["name", "description", "license", "compatibility"];
/// Nesting of recovered pairs: `metadata` has one level.
const DEPTH_MAX: usize = 3;

/// The fields of a text, or `None` when a line belongs to no field.
pub(super) fn recover(front_matter: &str) -> Option<Vec<Field>> {
    let spaced = without_tabs(front_matter);
    if spaced != front_matter
        && let Ok(fields) = from_yaml(&spaced)
    {
        return Some(fields.all);
    }
    let fields = segments(&spaced)?.iter().map(|segment| segment.field(0)).collect();
    Some(fields)
}

/// Tabs of the indent as two blanks each: YAML allows none.
fn without_tabs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches([' ', '\t']);
        out.push_str(&line[..line.len() - content.len()].replace('\t', "  "));
        out.push_str(content);
    }
    out
}

/// The lines of one field.
struct Segment<'a> {
    key: &'a str,
    /// Line of the key, counted from 1.
    line: u32,
    /// What follows the key on its line.
    first: &'a str,
    /// The lines below, as written.
    below: Vec<&'a str>,
    /// The text of all fields, and where this one's part of it ends and starts.
    all: &'a str,
    start: usize,
    end: usize,
}

fn segments(text: &str) -> Option<Vec<Segment<'_>>> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    let mut offset = 0;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let start = offset;
        offset += line.len();
        let line = line.trim_end();
        if line.starts_with('#') {
            continue;
        }
        if line.is_empty() || line.starts_with([' ', '-']) {
            match segments.last_mut() {
                Some(segment) => {
                    segment.below.push(line);
                    segment.end = offset;
                }
                None if line.is_empty() => {}
                None => return None,
            }
        } else {
            let (key, first) = key_of(line)?;
            let (line, below) = (at as u32 + 1, Vec::new());
            segments.push(Segment { key, line, first, below, all: text, start, end: offset });
        }
    }
    Some(segments)
}

/// A line `key: value` without indent.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_value = value.is_empty() || value.starts_with([' ', '\t']);
    (!key.is_empty() && key.chars().all(plain) && starts_value).then(|| (key, value.trim()))
}

impl Segment<'_> {
    fn field(&self, depth: usize) -> Field {
        let content = self.as_yaml().or_else(|| self.as_pairs(depth));
        let content = content.unwrap_or_else(|| Content::Text(self.as_text()));
        Field { key: self.key.to_owned(), line: self.line, content }
    }

    fn as_yaml(&self) -> Option<Content> {
        let mut fields = from_yaml(&self.all[self.start..self.end]).ok()?.all;
        if fields.len() != 1 || fields[0].key != self.key {
            return None;
        }
        Some(fields.remove(0).content)
    }

    /// Indented lines `key: value`, each of which may be broken.
    fn as_pairs(&self, depth: usize) -> Option<Content> {
        if !self.first.is_empty() || TEXTS.contains(&self.key) || depth >= DEPTH_MAX {
            return None;
        }
        let indent = |line: &&str| line.len() - line.trim_start().len();
        let whole = || self.below.iter().filter(|line| !line.is_empty());
        let common = whole().map(indent).min().filter(|&indent| indent > 0)?;
        let lines: Vec<&str> = whole().map(|line| &line[common..]).collect();
        let source = lines.join("\n");
        let entries = segments(&source)?.into_iter().map(|segment| segment.field(depth + 1));
        let entries = entries.map(|field| (field.key, field.content)).collect();
        Some(Content::Map { entries, source })
    }

    /// All lines as one text. A line ends in a blank, or in a line break under `|`;
    /// an empty line is a line break.
    fn as_text(&self) -> String {
        let is_block = self.first.starts_with(['|', '>']) && self.first.len() <= 3;
        let separator = if self.first.starts_with('|') { '\n' } else { ' ' };
        let mut text = if is_block { String::new() } else { self.first.to_owned() };
        for line in self.below.iter().map(|line| line.trim()) {
            if line.is_empty() {
                text.push('\n');
                continue;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push(separator);
            }
            text.push_str(line);
        }
        let text = text.trim();
        if is_block { text.to_owned() } else { unquoted(text) }
    }
}

/// A text without the quotation marks around it, where they are around the whole.
fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) else {
            continue;
        };
        // A mark within that follows a word closes what the first one opened, and
        // the text only starts with a quotation.
        let mut before = None;
        for c in inner.chars() {
            if c == quote && before != Some('\\') {
                if before.is_some_and(|c: char| !c.is_whitespace() && c != '(') {
                    return text.to_owned();
                }
                break;
            }
            before = Some(c);
        }
        return inner.replace(&format!("\\{quote}"), &quote.to_string());
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str, key: &str) -> Content {
        let fields = recover(text).expect("every line belongs to a field");
        fields.into_iter().find(|field| field.key == key).expect("the key is there").content
    }

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    #[test]
    fn one_broken_line_leaves_the_others_alone() {
        let front = "description: a: b\ntools: [x, y]\nmetadata:\n  v: 1.10\n  n: c: d\n";
        assert_eq!(field(front, "description"), text("a: b"));
        assert!(matches!(field(front, "tools"), Content::List { items, .. } if items.len() == 2));
        let Content::Map { entries, .. } = field(front, "metadata") else { panic!() };
        let expected = [("v".to_owned(), text("1.10")), ("n".to_owned(), text("c: d"))];
        assert_eq!(entries, expected);
    }

    #[test]
    fn tabs_are_indents() {
        let front = "name: x\nmetadata:\n\tversion: 2\ndescription: |\n\tone\n\ttwo\n";
        assert!(matches!(field(front, "metadata"), Content::Map { entries, .. }
            if entries == [("version".to_owned(), text("2"))]));
        assert_eq!(field(front, "description"), text("one\ntwo\n"));
    }

    #[test]
    fn quotation_marks_go_only_where_they_are_around_the_whole() {
        assert_eq!(unquoted("\"a: b\""), "a: b");
        assert_eq!(unquoted("\"a \"b\" c\""), "a \"b\" c");
        assert_eq!(unquoted("\"a\" and \"b\""), "\"a\" and \"b\"");
        assert_eq!(unquoted("'it''s'"), "'it''s'");
        assert_eq!(unquoted("\"say \\\"x\\\"\""), "say \"x\"");
    }

    #[test]
    fn a_line_of_no_field_is_refused() {
        assert_eq!(recover("bad: [\nno field\nname: a"), None);
        assert_eq!(recover("  indented: first"), None);
    }
}
