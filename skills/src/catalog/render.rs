//! The list of skills that a model is shown, within a budget.
//!
//! **Invariant:** the bytes depend on the set of skills, the format, the budget
//! and the counter only. The budget is never passed. What had to be left out to
//! meet it is said in [`Rendered::step`], and skills that are not listed are
//! counted in the text itself.
//!
//! **Refuses:** to leave out one skill for being long: all descriptions are
//! shortened to one length first, then all go.

use std::fmt::{self, Write as _};

use crate::text::{escape, escape_name, one_line};
use crate::{Catalog, DESCRIPTION_CHARS_MAX, Skill};

/// Share of a context that a catalog may take unless told otherwise.
pub const CATALOG_SHARE: f64 = 0.02;
/// Shortest description that still says something, in characters.
const DESCRIPTION_CHARS_MIN: usize = 48;
/// Tokens that a line may lose by standing beside another one: the two line ends
/// may join with their neighbours.
const TOKENS_JOINED_MAX: usize = 3;

/// How a catalog is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CatalogFormat {
    /// `- name: description`, a line each: the fewest tokens.
    #[default]
    Lines,
    /// The elements of the Agent Skills guide, with the place of each skill.
    Xml,
}

/// What had to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CatalogStep {
    /// Nothing.
    Whole,
    /// What descriptions have beyond this many characters.
    Shortened {
        /// Characters of the longest description that is shown.
        chars: usize,
    },
    /// All descriptions.
    NamesOnly,
    /// All descriptions, and the names of some skills.
    Cut,
}

/// A catalog as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text; empty without skills.
    pub text: String,
    /// Tokens of the text, by the counter given.
    pub n_tokens: usize,
    /// What had to be left out.
    pub step: CatalogStep,
    /// Skills that the text names.
    pub n_listed: usize,
    /// Skills that it does not.
    pub n_left_out: usize,
}

impl fmt::Display for Rendered {
    /// What had to be left out, in words; nothing for a whole catalog.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            CatalogStep::Whole => Ok(()),
            CatalogStep::Shortened { chars } => {
                write!(f, "descriptions in the catalog are cut to {chars} characters")
            }
            CatalogStep::NamesOnly => f.write_str("the catalog has names only"),
            CatalogStep::Cut => write!(
                f,
                "the catalog has {} names only, {} skills are left out",
                self.n_listed, self.n_left_out
            ),
        }
    }
}

/// The budget of a catalog for a context length, both in tokens.
pub fn catalog_budget(context_tokens: usize) -> usize {
    (context_tokens as f64 * CATALOG_SHARE) as usize
}

impl Catalog {
    /// The skills that a catalog tells of: not those inside another skill, of
    /// which their outer skill tells, nor those that only the user may activate.
    pub fn listed(&self) -> impl Iterator<Item = &Skill> {
        let skills = self.skills().iter().map(|skill| &**skill);
        skills.filter(|skill| skill.parent.is_none() && skill.invocable.by_model)
    }

    /// The catalog for a prompt: `- name: description` a line, sorted by
    /// name; empty without skills.
    ///
    /// Markup characters are entities, so that no description can end the place
    /// where the catalog stands, or spell a special token.
    pub fn render(&self) -> String {
        self.render_as(CatalogFormat::Lines)
    }

    /// The whole catalog in a format.
    pub fn render_as(&self, format: CatalogFormat) -> String {
        let lines = self.listed().map(|skill| entry(skill, format, Some(DESCRIPTION_CHARS_MAX)));
        join(&lines.collect::<Vec<_>>(), 0, format)
    }

    /// The catalog in at most `budget` tokens as counted by `count`. The counter
    /// is called with whole texts and with single lines.
    pub fn render_within(
        &self,
        format: CatalogFormat,
        budget: usize,
        count: &dyn Fn(&str) -> usize,
    ) -> Rendered {
        Fitting { skills: self.listed().collect(), format, budget, count }.render()
    }
}

/// Looks for the most that fits.
struct Fitting<'c> {
    skills: Vec<&'c Skill>,
    format: CatalogFormat,
    budget: usize,
    count: &'c dyn Fn(&str) -> usize,
}

impl Fitting<'_> {
    fn render(&self) -> Rendered {
        let n_skills = self.skills.len();
        let whole = self.with_descriptions(DESCRIPTION_CHARS_MAX);
        if let Some((text, n_tokens)) = whole {
            return rendered(text, n_tokens, CatalogStep::Whole, n_skills, 0);
        }
        let names = self.names(n_skills);
        let Some((text, n_tokens)) = names else { return self.cut() };
        let best = most(DESCRIPTION_CHARS_MIN, DESCRIPTION_CHARS_MAX - 1, |chars| {
            self.with_descriptions(chars)
        });
        match best {
            Some((chars, (text, n_tokens))) => {
                rendered(text, n_tokens, CatalogStep::Shortened { chars }, n_skills, 0)
            }
            None => rendered(text, n_tokens, CatalogStep::NamesOnly, n_skills, 0),
        }
    }

    fn cut(&self) -> Rendered {
        let n_skills = self.skills.len();
        let best = most(0, n_skills.saturating_sub(1), |n_listed| self.names(n_listed));
        match best {
            Some((n_listed, (text, n_tokens))) => {
                rendered(text, n_tokens, CatalogStep::Cut, n_listed, n_skills - n_listed)
            }
            // Not even the line that tells of it fits.
            None => rendered(String::new(), 0, CatalogStep::Cut, 0, n_skills),
        }
    }

    fn with_descriptions(&self, chars: usize) -> Option<(String, usize)> {
        let lines = self.skills.iter().map(|skill| entry(skill, self.format, Some(chars)));
        self.fitting(lines, 0)
    }

    /// The first names, and a line that counts the others.
    fn names(&self, n_listed: usize) -> Option<(String, usize)> {
        let lines = self.skills[..n_listed].iter().map(|skill| entry(skill, self.format, None));
        self.fitting(lines, self.skills.len() - n_listed)
    }

    /// The text of some lines with its tokens, when it fits.
    fn fitting(
        &self,
        lines: impl Iterator<Item = String>,
        n_left_out: usize,
    ) -> Option<(String, usize)> {
        let mut kept = Vec::new();
        let mut at_least = 0_usize;
        for line in lines {
            // Far too long a list is not counted to its end.
            at_least += (self.count)(&line).saturating_sub(TOKENS_JOINED_MAX);
            if at_least > self.budget {
                return None;
            }
            kept.push(line);
        }
        let text = join(&kept, n_left_out, self.format);
        let n_tokens = if text.is_empty() { 0 } else { (self.count)(&text) };
        (n_tokens <= self.budget).then_some((text, n_tokens))
    }
}

fn rendered(
    text: String,
    n_tokens: usize,
    step: CatalogStep,
    n_listed: usize,
    n_left_out: usize,
) -> Rendered {
    Rendered { text, n_tokens, step, n_listed, n_left_out }
}

/// The largest number of a range for which `make` makes something, by halving.
fn most<T>(low: usize, high: usize, make: impl Fn(usize) -> Option<T>) -> Option<(usize, T)> {
    let (mut low, mut high) = (low, high + 1);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match make(middle) {
            Some(made) => {
                best = Some((middle, made));
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    best
}

/// A skill's part of the catalog, line end included; without a length there is no
/// description.
fn entry(skill: &Skill, format: CatalogFormat, description_chars: Option<usize>) -> String {
    let name = escape_name(&one_line(&skill.name, DESCRIPTION_CHARS_MAX));
    let description = description_chars.map(|chars| escape(&shortened(skill, chars)));
    match (format, description) {
        (CatalogFormat::Lines, Some(description)) => format!("- {name}: {description}\n"),
        (CatalogFormat::Lines, None) => format!("- {name}\n"),
        (CatalogFormat::Xml, None) => format!("<skill><name>{name}</name></skill>\n"),
        (CatalogFormat::Xml, Some(description)) => {
            let place = one_line(&skill.file.to_string_lossy(), usize::MAX);
            let location = if place.is_empty() {
                String::new()
            } else {
                format!("<location>{}</location>\n", escape(&place))
            };
            format!(
                "<skill>\n<name>{name}</name>\n<description>{description}</description>\n\
                 {location}</skill>\n"
            )
        }
    }
}

/// The description in at most `chars` characters, the mark of a cut included.
fn shortened(skill: &Skill, chars: usize) -> String {
    let whole = one_line(&skill.description, DESCRIPTION_CHARS_MAX);
    if whole.chars().count() <= chars {
        return whole;
    }
    format!("{}…", one_line(&whole, chars - 1))
}

fn join(lines: &[String], n_left_out: usize, format: CatalogFormat) -> String {
    let mut text = lines.concat();
    if n_left_out > 0 {
        let skills = if n_left_out == 1 { "skill is" } else { "skills are" };
        let _ = writeln!(text, "{n_left_out} more {skills} left out; search finds them.");
    }
    match format {
        CatalogFormat::Xml if !text.is_empty() => {
            format!("<available_skills>\n{text}</available_skills>\n")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests;
