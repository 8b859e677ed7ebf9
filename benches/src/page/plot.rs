//! Plots as SVG, to stand inside a page: text and axes take the page's colour, and
//! the width is the page's.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::error::Error;

/// Units of a plot, which the page scales.
const SIZE: (u32, u32) = (460, 300);
/// Stands for the page's own colour, and is replaced by it.
const INK: RGBColor = RGBColor(1, 2, 3);
/// The same as it is written into the file.
const INK_HEX: &str = "#010203";
/// Colours that are told apart on light and on dark ground, the first six as in Okabe
/// and Ito 2008.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(148, 122, 20),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
    RGBColor(120, 94, 240),
    RGBColor(220, 38, 127),
];
const TEXT: i32 = 13;

/// A line with a band around it.
pub(super) struct Series {
    pub(super) name: String,
    /// `x`, `y` and the ends of its interval, in order of `x`.
    pub(super) points: Vec<(f64, f64, [f64; 2])>,
    pub(super) has_marks: bool,
}

/// What is on the axes.
pub(super) struct Axes<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// Whether `y` grows by factors; `x` always does.
    pub(super) is_log_y: bool,
}

/// A drawing, and what its lines are.
#[derive(Debug, serde::Serialize)]
pub(super) struct Plot {
    /// To be put into a page as it is.
    svg: String,
    legend: Vec<Key>,
}

/// One line of a drawing.
#[derive(Debug, serde::Serialize)]
struct Key {
    name: String,
    /// As CSS has it.
    colour: String,
}

/// Lines over a logarithmic axis.
pub(super) fn lines(axes: &Axes<'_>, series: &[Series]) -> Result<Plot, Error> {
    let xs = || series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    let ys = || series.iter().flat_map(|series| series.points.iter()).flat_map(|point| point.2);
    let x = range(xs()).log_scale();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        if axes.is_log_y {
            draw(&root, axes, x, range(ys()).log_scale(), series)
        } else {
            let top = ys().fold(f64::MIN_POSITIVE, f64::max);
            draw(&root, axes, x, 0.0..top * 1.05, series)
        }
        .map_err(|reason| Error::Page { reason })?;
    }
    let key = |(series, colour): (&Series, &RGBColor)| {
        let RGBColor(red, green, blue) = *colour;
        Key { name: series.name.clone(), colour: format!("rgb({red} {green} {blue})") }
    };
    let legend = series.iter().zip(COLOURS.iter().cycle()).map(key).collect();
    Ok(Plot { svg: into_page(&svg), legend })
}

/// The values' range, a little wider; the part below a ten-millionth of it is cut.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (mut low, mut high) = (f64::INFINITY, f64::MIN_POSITIVE);
    for value in values {
        high = high.max(value);
        if value > 0.0 {
            low = low.min(value);
        }
    }
    low.clamp(high * 1e-7, high) / 1.2..high * 1.2
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw<X, Y>(root: &Area<'_>, axes: &Axes<'_>, x: X, y: Y, series: &[Series]) -> Result<(), String>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let style = ("sans-serif", TEXT).into_font().color(&INK);
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(INK)
        .bold_line_style(INK.mix(0.15))
        .light_line_style(INK.mix(0.0))
        .label_style(style)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|value| label(*value))
        .y_label_formatter(&|value| label(*value))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .draw()
        .map_err(failed)?;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let points = &series.points;
        let upper = points.iter().map(|point| (point.0, point.2[1]));
        let lower = points.iter().rev().map(|point| (point.0, point.2[0]));
        let band: Vec<(f64, f64)> = upper.chain(lower).collect();
        let filled = Polygon::new(band, colour.mix(0.2).filled());
        chart.draw_series(std::iter::once(filled)).map_err(failed)?;
        let line = points.iter().map(|point| (point.0, point.1));
        let line = LineSeries::new(line, colour.stroke_width(2));
        let legend = chart.draw_series(line).map_err(failed)?;
        legend
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(3)));
        if series.has_marks {
            let mark =
                |point: &(f64, f64, [f64; 2])| Circle::new((point.0, point.1), 3, colour.filled());
            chart.draw_series(points.iter().map(mark)).map_err(failed)?;
        }
    }
    Ok(())
}

fn label(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => format!("{:.0}k", value / 1e3),
        size if size >= 10.0 => format!("{value:.0}"),
        size if size == 0.0 || size >= 0.01 => format!("{}", (value * 1000.0).round() / 1000.0),
        _ => format!("{value:.0e}"),
    }
}

/// Takes size and ink out of a drawing, so that the page gives them.
fn into_page(svg: &str) -> String {
    let (width, height) = SIZE;
    svg.replace(&format!("width=\"{width}\" height=\"{height}\" viewBox"), "role=\"img\" viewBox")
        .replace(INK_HEX, "currentColor")
}
