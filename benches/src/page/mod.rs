//! Reports as pages: one file of HTML each, with everything in it.
//!
//! **Invariant:** a page asks no other machine for anything, runs no script, and
//! can be read on a telephone, by day and by night. What came from outside, such as
//! questions and skills' names, is escaped.

use minijinja::{AutoEscape, Environment, Value};

use crate::error::Error;
use crate::report::{BenchReport, FidelityReport};

mod bench;
mod fidelity;
mod plot;

const BASE: &str = include_str!("base.html");
const FIGURE: &str = include_str!("figure.html");

/// The page of a fidelity report. Cases are listed where the report has them.
///
/// # Errors
/// [`Error::Page`] when it cannot be drawn.
pub fn fidelity_page(report: &FidelityReport) -> Result<String, Error> {
    fidelity::page(report)
}

/// The page of a speed report.
///
/// # Errors
/// [`Error::Page`] when it cannot be drawn.
pub fn bench_page(report: &BenchReport) -> Result<String, Error> {
    bench::page(report)
}

/// Fills a template, which extends `base.html`.
fn render(template: &str, values: Value) -> Result<String, Error> {
    let failed = |error: minijinja::Error| Error::Page { reason: format!("{error:#}") };
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("digits", digits);
    environment.add_filter("ms", |ms: f64| crate::table::duration(ms));
    environment.add_template("base.html", BASE).map_err(failed)?;
    environment.add_template("figure.html", FIGURE).map_err(failed)?;
    environment.add_template("page.html", template).map_err(failed)?;
    environment.get_template("page.html").and_then(|page| page.render(values)).map_err(failed)
}

/// A number with about three digits, whatever its size.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-4 => format!("{value:.1e}"),
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests;
