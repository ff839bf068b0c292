//! The report as a person reads it at the end of a run.

use std::fmt::Write as _;

use super::{report::Report, server::ServerUse, units};

/// The report as a table, of several lines.
pub fn table(report: &Report) -> String {
    let mut text = format!("{}\n", headline(report));
    let measured = format!("measured {:.1} s after {} s of warm-up", report.duration_s, report.plan.warmup_s);
    let stopped = if report.interrupted { ", stopped before its time" } else { "" };
    let _ = writeln!(text, "{measured}{stopped}");
    if let Some(note) = &report.note {
        let _ = writeln!(text, "NOTE: {note}");
    }
    text.push('\n');
    columns(
        &mut text,
        &[
            ("rate", units::rate(report.rate_per_s)),
            ("sent", units::count(report.sent)),
            ("received", units::count(report.received)),
            ("errors", units::count(report.errors)),
        ],
    );
    let latency = &report.latency_us;
    columns(
        &mut text,
        &[
            ("p50", units::micros(latency.p50)),
            ("p90", units::micros(latency.p90)),
            ("p99", units::micros(latency.p99)),
            ("p99.9", units::micros(latency.p999)),
            ("max", units::micros(latency.max)),
            ("mean", units::micros(latency.mean)),
        ],
    );
    columns(
        &mut text,
        &[
            ("lost", units::count(report.lost)),
            ("duplicated", units::count(report.duplicated)),
            ("reordered", units::count(report.reordered)),
            ("corrupted", units::count(report.corrupted)),
        ],
    );
    if let Some(server) = &report.server {
        columns(
            &mut text,
            &[
                ("CPU/message", server.cpu_us_per_message.map_or("-".into(), |us| format!("{us:.1} µs"))),
                ("server RSS", units::bytes(server.rss_bytes as f64)),
                ("peak RSS", units::bytes(server.peak_rss_bytes as f64)),
            ],
        );
    }
    let cpu = |used: &Option<ServerUse>| used.and_then(|used| used.cpu_us_per_message);
    let mut more = Vec::new();
    if let Some(us) = cpu(&report.postgres) {
        more.push(("PostgreSQL CPU/message", format!("{us:.1} µs")));
        more.push(("both", format!("{:.1} µs", us + cpu(&report.server).unwrap_or(0.0))));
    }
    if let Some(requests_per_s) = report.requests_per_s {
        more.push(("requests", units::rate(requests_per_s)));
    }
    if !more.is_empty() {
        columns(&mut text, &more);
    }
    for (kind, count) in &report.errors_by_kind {
        let _ = writeln!(text, "{} errors: {kind}", units::count(*count));
    }
    text
}

/// What was run against what, in one line.
pub fn headline(report: &Report) -> String {
    let Report { scenario, driver, target, plan, .. } = report;
    let style = if report.style == "verbs" { " by verbs" } else { "" };
    let mut shape = match scenario.as_str() {
        "request-reply" | "churn" | "durable-pipe" => format!("{} pairs", plan.pairs),
        "fan-out" => format!("{} groups", plan.groups),
        "parked" => format!("{} long polls", plan.parked),
        _ => format!("{} connections", plan.connections),
    };
    for (name, number) in [
        ("depth", plan.depth),
        ("batch", plan.batch),
        ("queues", plan.queues),
        ("partitions", plan.partitions),
        ("across", plan.across),
    ] {
        if number > 1 {
            let _ = write!(shape, ", {name} {number}");
        }
    }
    format!("{scenario}{style} · {driver} at {target} · {} · {shape} · {} bytes", report.pacing_text(), plan.size)
}

/// Names over values, each column as wide as it needs and at least so wide that the tables line up.
fn columns(text: &mut String, cells: &[(&str, String)]) {
    const WIDTH: usize = 13;
    let mut names = String::new();
    let mut values = String::new();
    for (name, value) in cells {
        let width = WIDTH.max(name.chars().count() + 2).max(value.chars().count() + 2);
        let _ = write!(names, "{name:>width$}");
        let _ = write!(values, "{value:>width$}");
    }
    let _ = write!(text, "{names}\n{values}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::example;

    #[test]
    fn the_table_lines_up() {
        let text = table(&example());
        let expected = "\
request-reply · queen at http://127.0.0.1:6632 · open loop, 50.0/s (poisson) · 8 pairs · 256 bytes
measured 2.0 s after 2 s of warm-up

         rate         sent     received       errors
       50.0/s          100          100            0
";
        assert!(text.starts_with(expected), "{text}");
        let latency = text.lines().skip_while(|line| !line.contains("p99.9")).nth(1).unwrap();
        assert!(latency.contains("5.00 ms") && latency.contains("10.0"), "{text}");
    }

    #[test]
    fn errors_are_told_apart_and_a_stop_is_told() {
        let mut report = example();
        report.errors = 3;
        report.errors_by_kind.insert("queue_full".into(), 3);
        report.interrupted = true;
        let text = table(&report);
        assert!(text.contains("3 errors: queue_full"), "{text}");
        assert!(text.contains("stopped before its time"), "{text}");
    }
}
