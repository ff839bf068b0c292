//! Reports as a picture: the percentile curve, and latency over time, as SVG.

mod axis;

use plotters::{
    coord::{Shift, ranged1d::ValueFormatter},
    prelude::*,
};

use self::axis::{Decades, Nines, Seconds};
use super::{error::CliError, report::Report, table, units};

/// Size of the picture in pixels.
const SIZE: (u32, u32) = (960, 900);
/// The colours of Okabe and Ito, which people with any colour vision tell apart, the darkest first.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const FONT: &str = "sans-serif";
/// Room for what stands beside a chart: the labels of latency, and the last label of the x axis.
const MARGIN_LEFT: i32 = 76;
const MARGIN_RIGHT: i32 = 36;
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// A line of a chart.
struct Curve {
    label: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// The picture of one report, or of several over each other, as the text of an SVG file. Each comes with its name for
/// the legend.
///
/// # Errors
///
/// [`CliError::Plot`], or [`CliError::Conflict`] if none of them has a latency.
pub fn svg(reports: &[(String, Report)]) -> Result<String, CliError> {
    if reports.iter().all(|(_, report)| report.samples() == 0) {
        return Err(CliError::Conflict("there is nothing to plot: no latency was measured".into()));
    }
    let mut text = String::new();
    draw(&mut text, reports).map_err(|error| CliError::Plot(error.to_string()))?;
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw(text: &mut String, reports: &[(String, Report)]) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.margin(12, 12, 12, 12);
    let (heading, charts) = root.split_vertically(44);
    heading.draw_text(&title(reports), &(FONT, 17).into_text_style(&heading).color(&INK), (8, 6))?;
    heading.draw_text(&subtitle(reports), &(FONT, 13).into_text_style(&heading).color(&INK.mix(0.7)), (8, 27))?;
    let (upper, lower) = charts.split_vertically(446);
    let lower = lower.margin(14, 0, 0, 0);
    percentile_chart(&upper, reports)?;
    time_chart(&lower, reports)?;
    root.present()
}

/// What was run: all of it if it is one run, else the scenario and the names.
fn title(reports: &[(String, Report)]) -> String {
    let [(_, first), others @ ..] = reports else { return String::new() };
    let names = reports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    match others {
        [] => table::headline(first),
        _ if others.iter().all(|(_, other)| other.scenario == first.scenario) => format!("{}: {names}", first.scenario),
        _ => names,
    }
}

/// What explains the figures: the machine, the commit, and what a reader must know of the pacing.
fn subtitle(reports: &[(String, Report)]) -> String {
    let (_, report) = &reports[0];
    let machine = format!("{} cores of {}, commit {}", report.machine.cores, report.machine.cpu, report.commit);
    let closed = reports.iter().find_map(|(_, report)| report.note.as_deref());
    closed.map_or(machine.clone(), |note| format!("{machine}; closed loop, {note}"))
}

fn percentile_chart(area: &Area, reports: &[(String, Report)]) -> Drawn {
    let curves: Vec<_> = reports
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|((name, report), colour)| {
            let samples = report.samples() as f64;
            // The longest one stands where one in so many is longer than all others.
            let nines = |quantile: f64| -((1.0 - quantile).max(1.0 / samples)).log10();
            let points = report.percentiles.iter().map(|point| (nines(point.quantile), point.us)).collect();
            let rate = units::rate(report.rate_per_s);
            Curve { label: format!("{name} ({}, {rate})", report.driver), colour: *colour, points }
        })
        .collect();
    let x = Nines::up_to(curves.iter().flat_map(|curve| &curve.points).map(|point| point.0));
    chart(area, "Latency by percentile", "percentile", x, &curves)
}

fn time_chart(area: &Area, reports: &[(String, Report)]) -> Drawn {
    type OfSecond = fn(&super::report::Second) -> f64;
    const OF_ONE: [(&str, OfSecond); 3] = [("p50", |s| s.p50_us), ("p99", |s| s.p99_us), ("max", |s| s.max_us)];
    let series = |report: &Report, of: OfSecond| -> Vec<(f64, f64)> {
        let seconds = report.seconds.iter().zip(1_u32..);
        seconds.map(|(second, at)| (f64::from(at), of(second))).filter(|point| point.1 > 0.0).collect()
    };
    let (caption, curves): (_, Vec<_>) = match reports {
        [(_, report)] => {
            let curves = OF_ONE.iter().zip(COLOURS).map(|((label, of), colour)| Curve {
                label: (*label).into(),
                colour,
                points: series(report, *of),
            });
            ("Latency over time, each second", curves.collect())
        }
        _ => {
            let curves = reports.iter().zip(COLOURS.iter().cycle()).map(|((name, report), colour)| Curve {
                label: name.clone(),
                colour: *colour,
                points: series(report, |second| second.p99_us),
            });
            ("p99 over time, each second", curves.collect())
        }
    };
    let x = Seconds::up_to(curves.iter().flat_map(|curve| &curve.points).map(|point| point.0));
    chart(area, caption, "second", x, &curves)
}

/// A chart with latency on its y axis, under its caption and legend.
fn chart<X>(area: &Area, caption: &str, x_label: &str, x: X, curves: &[Curve]) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let (_, area) = area.split_vertically(head(area, caption, curves)?);
    let y = Decades::around(curves.iter().flat_map(|curve| &curve.points).map(|point| point.1));
    let mut chart = ChartBuilder::on(&area)
        .margin_right(MARGIN_RIGHT)
        .x_label_area_size(50)
        .y_label_area_size(MARGIN_LEFT)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("latency")
        .axis_desc_style((FONT, 14).into_text_style(&area).color(&INK))
        .label_style((FONT, 13).into_text_style(&area).color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for Curve { colour, points, .. } in curves {
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        // A run of a second is a point, not a line.
        if let [point] = points.as_slice() {
            chart.draw_series([Circle::new(*point, 3, colour.filled())])?;
        }
    }
    Ok(())
}

/// Draws a chart's caption, and its legend beside it, where it can cover no curve. Returns how high they are.
fn head(area: &Area, caption: &str, curves: &[Curve]) -> Result<u32, DrawingAreaErrorKind<std::io::Error>> {
    const ROW: i32 = 22;
    const DASH: i32 = 22;
    const GAP: i32 = 8;
    let captions = (FONT, 17).into_text_style(area).color(&INK);
    let labels = (FONT, 14).into_text_style(area).color(&INK);
    // Without a font at hand text is measured roughly, and some fonts run wider.
    let width = |text: &str, style: &TextStyle| {
        let (width, _) = area.estimate_text_size(text, style)?;
        Ok::<_, DrawingAreaErrorKind<std::io::Error>>((f64::from(width) * 1.25) as i32)
    };
    let (area_width, _) = area.dim_in_pixel();
    let right = area_width as i32 - MARGIN_RIGHT;
    area.draw_text(caption, &captions, (MARGIN_LEFT, 2))?;
    let left = MARGIN_LEFT + width(caption, &captions)? + 3 * GAP;
    let (mut x, mut y) = (left, 2);
    for Curve { label, colour, .. } in curves {
        let entry = DASH + GAP + width(label, &labels)? + 2 * GAP;
        if x > left && x + entry > right {
            (x, y) = (left, y + ROW);
        }
        let dash = [(x, y + ROW / 2 - 2), (x + DASH, y + ROW / 2 - 2)];
        area.draw(&PathElement::new(dash, colour.stroke_width(3)))?;
        area.draw_text(label, &labels, (x + DASH + GAP, y + 2))?;
        x += entry;
    }
    Ok((y + ROW + GAP) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::example;

    #[test]
    fn one_report_is_drawn_with_its_median_p99_and_max() {
        let svg = svg(&[("a".into(), example())]).unwrap();
        for text in ["<svg", "request-reply · queen", "99%", "10 ms", "p50", "p99", "max", "percentile", "second"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }

    #[test]
    fn several_reports_have_a_curve_each_in_a_colour_of_its_own() {
        let svg = svg(&[("ours".into(), example()), ("theirs".into(), example())]).unwrap();
        for text in
            ["ours (queen, 50.0/s)", "theirs (queen, 50.0/s)", "request-reply: ours, theirs", "#0072B2", "#D55E00"]
        {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }

    #[test]
    fn nothing_measured_is_nothing_to_plot() {
        let report = Report { percentiles: Vec::new(), ..example() };
        let error = svg(&[("a".into(), report)]).unwrap_err().to_string();
        assert!(error.contains("nothing to plot"), "{error}");
    }
}
