//! An answer as it appears. In mode `verified` a part of it may be taken back: a
//! terminal is written anew from there, and what goes into a file or a pipe is held
//! until it is certain.

use std::io;

use console::Term;

use crate::ui::Ui;

/// Shows one answer.
pub(crate) struct AnswerView<'a> {
    ui: &'a Ui,
    /// Whether text may be taken back.
    may_change: bool,
    /// The text so far.
    text: String,
    term: Term,
}

impl<'a> AnswerView<'a> {
    pub(crate) fn new(ui: &'a Ui, may_change: bool) -> Self {
        AnswerView { ui, may_change, text: String::new(), term: Term::stdout() }
    }

    fn is_held(&self) -> bool {
        self.may_change && !self.term.is_term()
    }

    /// More text.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn push(&mut self, text: &str) -> io::Result<()> {
        self.text.push_str(text);
        if self.is_held() { Ok(()) } else { self.ui.data(text) }
    }

    /// Takes back all but the first `keep_bytes`.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn correct(&mut self, keep_bytes: usize) -> io::Result<()> {
        let shown = rows(&self.text, usize::from(self.term.size().1));
        self.text.truncate(keep_bytes);
        if self.is_held() {
            return Ok(());
        }
        if shown > usize::from(self.term.size().0) {
            // What has left the screen cannot be written anew.
            return self.ui.data(&format!("\n[corrected]\n{}", self.text));
        }
        self.term.move_cursor_up(shown - 1)?;
        self.term.write_str("\r")?;
        self.term.clear_to_end_of_screen()?;
        self.ui.data(&self.text)
    }

    /// The answer is complete.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn finish(&self) -> io::Result<()> {
        if self.is_held() { self.ui.data(&self.text) } else { Ok(()) }
    }
}

/// Rows that a text takes on a terminal of so many columns.
fn rows(text: &str, columns: usize) -> usize {
    let rows = |line: &str| console::measure_text_width(line).div_ceil(columns.max(1)).max(1);
    text.split('\n').map(rows).sum()
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn lines_wrap_at_the_last_column() {
        assert_eq!(rows("", 10), 1);
        assert_eq!(rows("0123456789", 10), 1);
        assert_eq!(rows("0123456789a", 10), 2);
        assert_eq!(rows("a\n\n0123456789a\n", 10), 5);
        assert_eq!(rows("\u{4e2d}\u{4e2d}\u{4e2d}", 4), 2);
    }
}
