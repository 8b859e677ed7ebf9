//! What the terminal shows. The only place of the program that prints.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use skillgraft::OpenEvent;
use skillgraft::models::Progress;

/// The terminal.
#[derive(Debug)]
pub(crate) struct Ui {
    quiet: bool,
    color: bool,
    terminal: bool,
    bar: RefCell<Option<ProgressBar>>,
    last_source: RefCell<String>,
}

impl Ui {
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ui {
            quiet,
            color: terminal && !no_color,
            terminal,
            bar: RefCell::default(),
            last_source: RefCell::default(),
        }
    }

    /// Writes data to stdout at once.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn data(&self, text: &str) -> io::Result<()> {
        self.finish_progress();
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Asks for a line, where a person sits at the terminal.
    pub(crate) fn prompt(&self, text: &str) {
        self.finish_progress();
        if self.terminal && io::stdin().is_terminal() {
            let mut stderr = io::stderr().lock();
            // A terminal that takes no more text takes no prompt either.
            let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
        }
    }

    /// Writes one JSON value to stdout.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        self.data(&format!("{}\n", serde_json::to_string_pretty(value)?))?;
        Ok(())
    }

    /// A line of a report, unless quiet.
    pub(crate) fn line(&self, text: &str) {
        if !self.quiet {
            self.print(text);
        }
    }

    /// A report's line with a name in front.
    pub(crate) fn field(&self, name: &str, text: &str) {
        self.line(&format!("{} {text}", self.paint("2", &format!("{name:<9}"))));
    }

    /// Something that works less well than it should.
    pub(crate) fn warning(&self, text: &str) {
        self.line(&format!("{} {text}", self.paint("33", "warning:")));
    }

    pub(crate) fn error(&self, text: &str) {
        self.print(&format!("{} {text}", self.paint("31", "error:")));
    }

    pub(crate) fn hint(&self, text: &str) {
        self.print(&format!("\n{} {text}", self.paint("36", "hint:")));
    }

    #[expect(clippy::print_stderr, reason = "this is the place that prints")]
    fn print(&self, text: &str) {
        self.finish_progress();
        eprintln!("{text}");
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Says what is going on, until something else is printed. Without a
    /// terminal it is a line.
    pub(crate) fn status(&self, text: &str) {
        self.finish_progress();
        if self.quiet {
            return;
        }
        if self.terminal {
            let bar = ProgressBar::new_spinner().with_message(text.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            *self.bar.borrow_mut() = Some(bar);
        } else {
            self.print(text);
        }
    }

    /// Says what is going on to a person who watches; without a terminal nothing.
    pub(crate) fn status_on_terminal(&self, text: &str) {
        if self.terminal {
            self.status(text);
        }
    }

    /// Takes the progress away.
    pub(crate) fn finish_progress(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }

    /// Shows what happens while a runtime is opened.
    pub(crate) fn opening(&self, event: OpenEvent) {
        match event {
            OpenEvent::Fetching(progress) => self.fetching(progress),
            OpenEvent::Loading => {
                self.finish_progress();
                self.status_on_terminal("loading the model");
            }
            _ => {}
        }
    }

    /// Shows how a download goes.
    pub(crate) fn fetching(&self, progress: Progress) {
        match progress {
            Progress::WaitingForLock { .. } => {
                self.status("waiting for another process that fetches the model");
            }
            Progress::SourceStarted { source } => {
                self.status(&format!("fetching the model from {source}"));
                *self.last_source.borrow_mut() = source;
            }
            Progress::SourceRefused { source, reason } => {
                self.warning(&format!("{source} refused: {reason}"));
            }
            Progress::Bytes { done, total } => self.bytes(done, total),
            Progress::Verifying => self.status("checking the model file"),
            // A model that was there already is not worth a line.
            Progress::Done { path } if !self.last_source.borrow().is_empty() => {
                self.line(&format!("model ready: {}", path.display()));
            }
            _ => {}
        }
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        if self.quiet || !self.terminal {
            return;
        }
        let mut bar = self.bar.borrow_mut();
        let is_bytes = bar.as_ref().is_some_and(|bar| bar.length().is_some());
        if !is_bytes && let Some(total) = total {
            if let Some(old) = bar.take() {
                old.finish_and_clear();
            }
            let template =
                "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let message = format!("fetching from {}", self.last_source.borrow());
            *bar = Some(ProgressBar::new(total).with_style(style).with_message(message));
        }
        if let Some(bar) = bar.as_ref() {
            bar.set_position(done);
        }
    }
}
