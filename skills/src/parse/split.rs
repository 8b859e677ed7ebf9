//! Finds the front matter of a file.
//!
//! **Invariant:** the front matter starts and ends with a line that is `---`,
//! blanks at its end apart. A `---` inside a value, in a fence or in the body ends
//! nothing.
//!
//! **Refuses:** text before the front matter, blank lines and HTML comments apart.

use crate::Code;

/// The parts of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) front_matter: &'a str,
    /// Line of the file on which the front matter's text starts, counted from 1.
    pub(super) front_line: u32,
    pub(super) body: &'a str,
    pub(super) body_line: u32,
    /// Whether something precedes the front matter.
    pub(super) leading: bool,
}

/// Why there is no front matter: the code, and the line that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoFront {
    pub(super) code: Code,
    pub(super) line: u32,
}

/// Splits a text with line ends `\n`.
pub(super) fn split(text: &str) -> Result<Parts<'_>, NoFront> {
    let start = leading(text);
    let number_at = |offset: usize| 1 + text[..offset].matches('\n').count() as u32;
    let mut lines = text[start..].split_inclusive('\n');
    let opening = lines.next().filter(|line| is_mark(line));
    let Some(opening) = opening else {
        return Err(NoFront { code: Code::NoFrontMatter, line: number_at(start) });
    };
    let inner = start + opening.len();
    let mut offset = inner;
    for line in lines {
        if is_mark(line) {
            let rest = &text[offset + line.len()..];
            // Only whole blank lines go: the indent of the first line may carry meaning.
            let blank = rest.len() - rest.trim_start().len();
            let body_at = rest[..blank].rfind('\n').map_or(0, |newline| newline + 1);
            let body = &rest[body_at..];
            return Ok(Parts {
                front_matter: &text[inner..offset],
                front_line: number_at(inner),
                body: if body.trim().is_empty() { "" } else { body },
                body_line: number_at(text.len() - body.len()),
                leading: start > 0,
            });
        }
        offset += line.len();
    }
    Err(NoFront { code: Code::UnterminatedFrontMatter, line: number_at(start) })
}

fn is_mark(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Bytes before the first line that is neither blank nor of an HTML comment.
fn leading(text: &str) -> usize {
    let mut offset = 0;
    loop {
        let rest = &text[offset..];
        let blank = rest.len() - rest.trim_start().len();
        let line = offset + rest[..blank].rfind('\n').map_or(0, |newline| newline + 1);
        let content = rest.trim_start();
        let Some(end) = content.strip_prefix("<!--").and_then(|inner| inner.find("-->")) else {
            return line;
        };
        offset += blank + "<!--".len() + end + "-->".len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_may_precede() {
        for (before, line) in [("", 2), ("\n\n", 4), ("<!-- a\nb -->\n", 4), ("<!----> \n", 3)] {
            let text = format!("{before}---\na: b\n---\nbody\n");
            let parts = split(&text).expect("it has front matter");
            assert_eq!((parts.front_matter, parts.front_line), ("a: b\n", line), "{before:?}");
            assert_eq!(parts.leading, !before.is_empty());
        }
        for before in ["x\n", "<!-- open\n", "<!-- a --> x\n", " "] {
            let text = format!("{before}---\na: b\n---\n");
            assert_eq!(split(&text).expect_err(before).code, Code::NoFrontMatter);
        }
    }

    #[test]
    fn only_a_line_of_its_own_ends_it() {
        let front = "a: x --- y\nb: |\n  ---\n  ----\nc: 1\n";
        let text = format!("---  \n{front}--- \t\n\n---\nbody\n---\n");
        let parts = split(&text).expect("it has front matter");
        assert_eq!((parts.front_matter, parts.body), (front, "---\nbody\n---\n"));
        assert_eq!(parts.body_line, 9);
        let open = split("---\na: b\n").expect_err("no end");
        assert_eq!(open, NoFront { code: Code::UnterminatedFrontMatter, line: 1 });
    }
}
