//! Plots of a kind: rows of dots on a logarithmic axis.
//!
//! What a benchmark compares differs by orders of magnitude, so bars, which must begin at zero, would hide most of it. Each series
//! has a colour and a shape of its own, and a line of its own within a row, so that dots of two series never hide each other.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A plot to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Dots {
    pub title: String,
    /// What the axis counts.
    pub axis: String,
    pub series: Vec<&'static str>,
    pub rows: Vec<Row>,
}

/// What belongs to one label.
#[derive(Clone, Debug)]
pub struct Row {
    pub label: String,
    /// Number of the series, value. What is not positive has no place on the axis and is left out.
    pub dots: Vec<(usize, f64)>,
}

impl Row {
    /// The series that it has, in order.
    fn series(&self) -> BTreeSet<usize> {
        self.dots.iter().map(|dot| dot.0).collect()
    }

    fn height(&self) -> i32 {
        LINE * self.series().len().max(1) as i32 + BETWEEN
    }
}

/// Whether a logarithmic axis has a place for it.
fn drawable(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

const WIDTH: i32 = 960;
const TOP: i32 = 64;
const BOTTOM: i32 = 52;
const RIGHT: i32 = 28;
/// The height of a series' line within a row, and the space between rows.
const LINE: i32 = 11;
const BETWEEN: i32 = 9;
/// The width of a letter at the labels' size, about.
const LETTER: f64 = 6.4;

impl Dots {
    /// The plot as SVG.
    ///
    /// # Errors
    /// When there is nothing to draw, or more series than colours.
    pub fn svg(&self) -> Result<String> {
        let values = || self.rows.iter().flat_map(|r| &r.dots).map(|d| d.1).filter(|v| drawable(*v));
        ensure!(values().next().is_some(), "there is nothing to plot");
        ensure!(self.series.len() <= COLOURS.len(), "more series than colours");
        let least = values().fold(f64::INFINITY, f64::min).log10();
        let most = values().fold(0.0, f64::max).log10();
        // Whole steps of 1, 2, 5 on both sides.
        let (from, to) = (step_below(least), step_above(most));
        let rows: i32 = self.rows.iter().map(Row::height).sum();
        let height = TOP + BOTTOM + self.legend_height() + rows;
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
            area.fill(&WHITE)?;
            let longest = self.rows.iter().map(|r| r.label.chars().count()).max().unwrap_or(0);
            let left = 24 + (longest as f64 * LETTER) as i32;
            let frame = Frame { left, top: TOP + self.legend_height(), height, from, to };
            self.draw(&area, &frame)?;
            area.present()?;
        }
        // The file says what it shows, for those who cannot see it.
        let mut alt = String::new();
        write!(alt, "<title>{}</title>", escaped(&self.title))?;
        let at = text.find('>').map_or(0, |at| at + 1);
        text.insert_str(at, &alt);
        Ok(text)
    }

    fn legend_height(&self) -> i32 {
        18 * (self.series.len() as i32).div_euclid(4) + 6
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, frame: &Frame) -> Result<()> {
        let bottom = frame.height - BOTTOM;
        let title = ("sans-serif", 18).into_font().color(&BLACK);
        area.draw(&Text::new(self.title.clone(), (20, 14), title))?;
        // 1. Legend.
        let mut at = (20, 46);
        for (i, name) in self.series.iter().enumerate() {
            let needed = 30 + (name.chars().count() as f64 * LETTER) as i32;
            if at.0 + needed > WIDTH - RIGHT {
                at = (20, at.1 + 18);
            }
            mark(area, i, (at.0 + 5, at.1))?;
            let style = ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new((*name).to_owned(), (at.0 + 14, at.1), style))?;
            at.0 += needed + 14;
        }
        // 2. The axis: a line and a number at 1, 2, 5 of every power of ten, as far as they have room.
        let decades = (frame.to - frame.from).max(0.1);
        let wanted: &[f64] = if decades > 4.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        for power in frame.from.floor() as i32..=frame.to.ceil() as i32 {
            for step in wanted {
                let value = step * 10f64.powi(power);
                let log = value.log10();
                if log < frame.from - 1e-9 || log > frame.to + 1e-9 {
                    continue;
                }
                let x = frame.x(log);
                let shade = if *step == 1.0 { RGBColor(190, 190, 190) } else { RGBColor(228, 228, 228) };
                area.draw(&PathElement::new(vec![(x, frame.top), (x, bottom)], shade))?;
                let style =
                    ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
                area.draw(&Text::new(number(value), (x, bottom + 6), style))?;
            }
        }
        let style = ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        let middle = (frame.left + WIDTH - RIGHT) / 2;
        area.draw(&Text::new(self.axis.clone(), (middle, bottom + 26), style))?;
        // 3. Rows.
        let mut top = frame.top;
        for (i, row) in self.rows.iter().enumerate() {
            let height = row.height();
            if i % 2 == 1 {
                let stripe = [(8, top), (WIDTH - RIGHT + 12, top + height)];
                area.draw(&Rectangle::new(stripe, RGBAColor(0, 0, 0, 0.04).filled()))?;
            }
            let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(row.label.clone(), (14, top + height / 2), style))?;
            for (line, series) in row.series().into_iter().enumerate() {
                let y = top + BETWEEN / 2 + LINE * line as i32 + LINE / 2;
                let values = row.dots.iter().filter(|dot| dot.0 == series).map(|dot| dot.1);
                for value in values.filter(|value| drawable(*value)) {
                    mark(area, series, (frame.x(value.log10()), y))?;
                }
            }
            top += height;
        }
        Ok(())
    }
}

/// Where things are, in pixels; the axis in powers of ten.
struct Frame {
    left: i32,
    top: i32,
    height: i32,
    from: f64,
    to: f64,
}

impl Frame {
    fn x(&self, log: f64) -> i32 {
        let width = f64::from(WIDTH - RIGHT - self.left);
        self.left + (width * (log - self.from) / (self.to - self.from)).round() as i32
    }
}

fn mark(area: &DrawingArea<SVGBackend<'_>, Shift>, series: usize, at: (i32, i32)) -> Result<()> {
    let colour = COLOURS[series];
    match series % 4 {
        0 => area.draw(&Circle::new(at, 4, colour.filled()))?,
        1 => area.draw(&TriangleMarker::new(at, 5, colour.filled()))?,
        2 => area.draw(&Rectangle::new([(at.0 - 3, at.1 - 3), (at.0 + 3, at.1 + 3)], colour.filled()))?,
        _ => area.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
    }
    Ok(())
}

/// The logarithm of the largest of 1, 2, 5 times a power of ten that is clearly below.
fn step_below(log: f64) -> f64 {
    steps(log).filter(|step| *step < log - 0.02).fold(f64::NEG_INFINITY, f64::max)
}

fn step_above(log: f64) -> f64 {
    steps(log).filter(|step| *step > log + 0.02).fold(f64::INFINITY, f64::min)
}

fn steps(log: f64) -> impl Iterator<Item = f64> {
    (-1..=1)
        .flat_map(move |power| [1.0f64, 2.0, 5.0].map(|step| log.floor() + f64::from(power) + step.log10()))
}

fn number(value: f64) -> String {
    let digits = (-value.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[f64]) -> Dots {
        Dots {
            title: "a < b".into(),
            axis: "seconds".into(),
            series: vec!["ours", "theirs"],
            rows: vec![Row { label: "one".into(), dots: values.iter().map(|v| (1, *v)).collect() }],
        }
    }

    #[test]
    fn every_positive_dot_is_drawn_once_besides_the_legend() {
        let svg = plot(&[0.5, 40.0, 0.0]).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("<title>a &lt; b</title>"));
        // A triangle each, and one in the legend.
        assert_eq!(svg.matches("<polygon").count(), 3);
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        assert!(plot(&[]).svg().is_err());
        assert!(plot(&[0.0, -1.0]).svg().is_err());
    }

    #[test]
    fn the_axis_ends_at_round_numbers_beyond_the_dots() {
        for (value, below, above) in
            [(3.0, 2.0, 5.0), (1.0, 0.5, 2.0), (0.07, 0.05, 0.1), (999.0, 500.0, 2000.0)]
        {
            let log = f64::log10(value);
            assert!((10f64.powf(step_below(log)) / below - 1.0).abs() < 1e-9, "{value}");
            assert!((10f64.powf(step_above(log)) / above - 1.0).abs() < 1e-9, "{value}");
        }
        assert_eq!(number(0.05), "0.05");
        assert_eq!(number(200.0), "200");
    }
}
