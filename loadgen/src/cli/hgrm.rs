//! The distribution of latencies in the percentile format of HdrHistogram (`.hgrm`), which its plotter and many
//! scripts read. Values are in milliseconds, as wrk2 writes them.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

/// Points for each halving of what remains above, as HdrHistogram's own output has by default.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// The text of a `.hgrm` file.
pub fn hgrm(latency_ns: &Histogram<u64>) -> String {
    let ms = |ns: f64| ns / 1e6;
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in latency_ns.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        count += step.count_since_last_iteration();
        let (value, quantile) = (ms(step.value_iterated_to() as f64), step.quantile_iterated_to());
        let _ = write!(text, "{value:12.3} {quantile:2.12} {count:10}");
        // The last line, of all of them, has no fourth column.
        let _ = if quantile < 1.0 { writeln!(text, " {:14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let (mean, deviation) = (ms(latency_ns.mean()), ms(latency_ns.stdev()));
    let max = if latency_ns.is_empty() { 0.0 } else { ms(latency_ns.max() as f64) };
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", latency_ns.len());
    let (buckets, sub_buckets) = (latency_ns.buckets(), 2 * 10_u64.pow(latency_ns.sigfig().into()).next_power_of_two());
    let _ = writeln!(text, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_as_hdr_histogram_writes_it() {
        let mut latency_ns = Histogram::new(3).unwrap();
        for n in 1..=1000u64 {
            latency_ns.record(n * 1_000_000).unwrap();
        }
        let text = hgrm(&latency_ns);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|row| row.split_whitespace().collect())
            .collect();
        let median = rows.iter().find(|row| row[1] == "0.500000000000").unwrap();
        assert!((median[0].parse::<f64>().unwrap() - 500.0).abs() < 1.0, "{median:?}");
        assert_eq!(median[3], "2.00");
        let last = rows.last().unwrap();
        assert_eq!(last[1..], ["1.000000000000", "1000"]);
        assert!(text.contains("Total count    =         1000]"), "{text}");
        assert!(text.contains("SubBuckets     =         2048]"), "{text}");
    }
}
