//! Reports as a picture: the percentile curve, and latency over time, as SVG.

mod axis;

use plotters::{
    coord::{Shift, ranged1d::ValueFormatter, types::RangedCoordf64},
    prelude::*,
};

use self::axis::{Decades, Nines};
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
    let title = match reports {
        [(_, report)] => table::headline(report),
        _ => reports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
    };
    heading.draw_text(&title, &(FONT, 17).into_text_style(&heading).color(&INK), (8, 6))?;
    heading.draw_text(&subtitle(reports), &(FONT, 13).into_text_style(&heading).color(&INK.mix(0.7)), (8, 27))?;
    let (upper, lower) = charts.split_vertically(440);
    percentile_chart(&upper, reports)?;
    time_chart(&lower, reports)?;
    root.present()
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
    let last = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).fold(2.0, f64::max);
    chart(area, caption, "second", RangedCoordf64::from(1.0..last), &curves)
}

/// A chart with latency on its y axis.
fn chart<X>(area: &Area, caption: &str, x_label: &str, x: X, curves: &[Curve]) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let y = Decades::around(curves.iter().flat_map(|curve| &curve.points).map(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 16).into_text_style(area).color(&INK))
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("latency")
        .axis_desc_style((FONT, 14).into_text_style(area).color(&INK))
        .label_style((FONT, 13).into_text_style(area).color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_labels(12)
        .draw()?;
    for Curve { label, colour, points } in curves {
        let stroke = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), stroke))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], stroke));
        // A run of a second is a point, not a line.
        if let [point] = points.as_slice() {
            chart.draw_series([Circle::new(*point, 3, colour.filled())])?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(12)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font((FONT, 14).into_text_style(area).color(&INK))
        .draw()
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
        for text in ["ours (queen, 50.0/s)", "theirs (queen, 50.0/s)", "#0072B2", "#D55E00"] {
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
