//! A skill's body as units of search: its headings and its lines of text.
//!
//! **Invariant:** a unit is one line of the body, so that it can be shown, found
//! again and recomputed as a whole. A `#` inside a code block is not a heading.
//!
//! **Refuses:** nothing; any text is Markdown.

use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnitKind {
    /// A heading.
    Heading,
    /// A line of prose, of a list or of a table.
    Text,
    /// A line inside a code block.
    Code,
}

/// One line of a body that has any letter or digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit<'a> {
    /// What it is.
    pub kind: UnitKind,
    /// The line as written, without marks of a heading and without white space
    /// around it.
    pub text: &'a str,
    /// Line of the body, counted from 0.
    pub line: u32,
    /// The heading under which it stands, as an index of the units.
    pub heading: Option<usize>,
}

/// The units of a body, in order.
pub fn units(body: &str) -> Vec<Unit<'_>> {
    let spans = Spans::of(body);
    let mut units = Vec::new();
    let mut heading = None;
    let mut offset = 0;
    for (line, text) in body.split_inclusive('\n').enumerate() {
        // Block spans start at the first character that is not indent.
        let start = offset + (text.len() - text.trim_start().len());
        offset += text.len();
        if !text.contains(char::is_alphanumeric) {
            continue;
        }
        let kind = spans.kind_at(start);
        let text = match kind {
            UnitKind::Heading => text.trim().trim_matches('#').trim(),
            UnitKind::Text | UnitKind::Code => text.trim(),
        };
        if kind == UnitKind::Heading {
            heading = Some(units.len());
        }
        let above = if kind == UnitKind::Heading { None } else { heading };
        units.push(Unit { kind, text, line: line as u32, heading: above });
    }
    units
}

/// A link to a file, relative to the skill's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The path as written, without fragment; `%20` is a blank.
    pub target: String,
    /// Line of the body on which the link starts, counted from 0.
    pub line: u32,
}

/// The links of a body to files, images included. Links with a scheme, to places
/// in the page, to absolute paths, and patterns such as `<name>.md` are no such
/// links; code has none.
pub fn links(body: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let (mut line, mut counted) = (0, 0);
    for (event, range) in Parser::new(body).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else {
            continue;
        };
        if range.start > counted {
            line += body[counted..range.start].matches('\n').count() as u32;
            counted = range.start;
        }
        let path = dest_url.split(['#', '?']).next().unwrap_or("").replace("%20", " ");
        let is_elsewhere = path.is_empty() || path.contains(':') || path.starts_with('/');
        if !is_elsewhere && !path.contains(['<', '>', '{', '}', '*', '$']) {
            links.push(Link { target: path, line });
        }
    }
    links
}

/// Where a body's headings and code blocks are, as ascending byte ranges.
struct Spans {
    headings: Vec<Range<usize>>,
    code: Vec<Range<usize>>,
}

impl Spans {
    fn of(body: &str) -> Self {
        let mut spans = Spans { headings: Vec::new(), code: Vec::new() };
        for (event, range) in Parser::new(body).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => spans.headings.push(range),
                Event::Start(Tag::CodeBlock(_)) => spans.code.push(range),
                _ => {}
            }
        }
        spans
    }

    fn kind_at(&self, offset: usize) -> UnitKind {
        let holds = |ranges: &[Range<usize>]| {
            let after = ranges.partition_point(|range| range.start <= offset);
            after.checked_sub(1).is_some_and(|last| ranges[last].contains(&offset))
        };
        if holds(&self.headings) {
            UnitKind::Heading
        } else if holds(&self.code) {
            UnitKind::Code
        } else {
            UnitKind::Text
        }
    }
}

#[cfg(test)]
mod tests;
