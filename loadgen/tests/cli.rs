//! The command, started as people start it: what it says to bad input, what it leaves behind, and its exit codes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The command, in a directory of its own.
struct Loadgen {
    directory: TempDir,
}

impl Loadgen {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.current_dir(&self.directory).args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> Ran {
        Ran::new(arguments, &self.command(arguments).output().unwrap())
    }

    /// Refuses `arguments` with exit code 2 and a text that has each of `says`.
    fn refuses(&self, arguments: &str, says: &[&str]) {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        for said in says {
            assert!(ran.stderr.contains(said), "{said:?} in {ran:?}");
        }
    }
}

/// What came of a command.
#[derive(Debug)]
#[allow(dead_code, reason = "the arguments are read where an assertion prints all of it")]
struct Ran {
    arguments: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn new(arguments: &str, output: &Output) -> Self {
        Self {
            arguments: arguments.into(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into(),
            stderr: String::from_utf8_lossy(&output.stderr).into(),
        }
    }
}

/// A broker that takes every push, for as long as the test runs.
fn stub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(&stream.unwrap()));
        }
    });
    url
}

/// Answers each request of a connection alike, until it ends.
fn serve(stream: &TcpStream) -> Option<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"pushed\":1}";
    let mut input = BufReader::new(stream);
    loop {
        let mut body_bytes = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                body_bytes = length.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut input.by_ref().take(body_bytes), &mut std::io::sink()).ok()?;
        (&mut &*stream).write_all(ANSWER).ok()?;
    }
}

/// An address at which nobody listens.
fn nobody() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{address}")
}

const SHORT: &str = "--rate 200 --duration 500ms --warmup 100ms --connections 2";

#[test]
fn a_wrong_scenario_lists_the_right_ones() {
    Loadgen::new().refuses("pushh", &["no scenario `pushh`", "push-pop", "request-reply", "mixed", ".toml"]);
    Loadgen::new().refuses("--quiet", &["no scenario"]);
}

#[test]
fn a_wrong_flag_is_named() {
    let loadgen = Loadgen::new();
    for (arguments, says) in [
        ("push --bogus", ["--bogus", ""]),
        ("push --rate 0", ["--rate", "above zero"]),
        ("push --rate fast", ["--rate", "above zero"]),
        ("push --rate 5 --closed", ["--rate", "--closed"]),
        ("push --arrivals late", ["--arrivals", "poisson"]),
        ("push --duration 5", ["--duration", "time unit"]),
        ("push --duration 0s", ["--duration", "nothing to measure"]),
        ("push --warmup soon", ["--warmup", ""]),
        ("push --connections 0", ["--connections", "zero"]),
        ("push --batch x", ["--batch", ""]),
        ("push --size 1k", ["--size", "64-1024"]),
        ("push --size 1024-64", ["--size", "backwards"]),
        ("push --spread zipf:0", ["--spread", "zipf:EXPONENT"]),
        ("push --style quick", ["--style", "verbs"]),
        ("push --driver kafka", ["--driver", "nats"]),
        ("push --cpus 3-1", ["--cpus", "backwards"]),
        ("push --seed x", ["--seed", ""]),
        ("push --allow everything", ["--allow", "duplicated"]),
        ("push --target https://127.0.0.1", ["--target", "http://"]),
        ("push --target http://127.0.0.1:1/queue", ["--target", "http://127.0.0.1:6632"]),
        ("push --server-pid 4294967295", ["--server-pid 4294967295", "no such process"]),
        ("push --ramp", ["--ramp", "--p99"]),
        ("push --ramp --closed --p99 5ms", ["--ramp", "--closed"]),
        ("push --json nowhere/report.json", ["nowhere/report.json", "No such file"]),
        ("push --plot nowhere/plot.svg", ["nowhere/plot.svg", "No such file"]),
        ("push --sla missing.toml", ["missing.toml", "No such file"]),
        ("plot", ["REPORT.json", ""]),
        ("sla", ["FILE.toml", ""]),
        ("sla x.toml --limits-factor 0.5", ["--limits-factor", "at least 1"]),
    ] {
        loadgen.refuses(arguments, &says);
    }
}

#[test]
fn a_file_that_does_not_parse_is_named_with_what_is_wrong() {
    let loadgen = Loadgen::new();
    let scenario = |text: &str, says: &[&str]| {
        loadgen.file("scenario.toml", text);
        loadgen.refuses("scenario.toml", &[&["scenario.toml"], says].concat());
    };
    scenario("scenario = ", &["line 1"]);
    scenario("scenario = 'push'\nraet = 5", &["line 2", "unknown field `raet`", "`rate`", "`duration`"]);
    scenario("scenario = 'pushh'", &["no scenario `pushh`", "request-reply"]);
    scenario("scenario = 'push'\nbatch = 0", &["line 2", "`0`", "zero"]);
    scenario("scenario = 'push'\nclosed = true\nrate = 5", &["`closed`", "`rate`"]);
    scenario("scenario = 'push'\n[limits]\np98 = '5ms'", &["unknown field `p98`", "`p999`"]);
    loadgen.refuses("absent.toml", &["absent.toml", "No such file"]);
    loadgen.file("nameless.toml", "rate = 5");
    loadgen.refuses("nameless.toml", &["no scenario", "scenario = "]);
    loadgen.file("sizes", "120\n99999\nmany\n");
    loadgen.refuses(&format!("push --target {} --size @sizes", stub()), &["sizes", "many"]);
}

#[test]
fn an_sla_without_limits_or_with_a_blind_eye_is_refused() {
    let loadgen = Loadgen::new();
    loadgen.file("none.toml", "scenario = 'push'");
    loadgen.refuses("sla none.toml", &["none.toml", "[limits]"]);
    loadgen.file("blind.toml", "scenario = 'push'\nallow = 'lost'\n[limits]\np99 = '5ms'");
    loadgen.refuses("sla blind.toml", &["blind.toml", "allow"]);
    loadgen.file("good.toml", "scenario = 'push'\n[limits]\np99 = '5ms'");
    loadgen.refuses("sla good.toml none.toml", &["none.toml"]);
    loadgen.refuses("sla good.toml --allow lost", &["--allow"]);
}

#[test]
fn what_is_no_report_is_not_plotted() {
    let loadgen = Loadgen::new();
    loadgen.refuses("plot absent.json", &["absent.json", "No such file"]);
    loadgen.file("other.json", "{\"rate\": 5}");
    loadgen.refuses("plot other.json", &["other.json", "no report", "scenario"]);
}

#[test]
fn a_target_that_does_not_answer_is_named() {
    for scenario in ["push", "request-reply"] {
        let target = nobody();
        Loadgen::new().refuses(&format!("{scenario} --target {target} {SHORT}"), &[&target]);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = Loadgen::new().run("--help");
    assert_eq!(help.code, Some(0));
    for word in ["push-pop", "--rate", "--closed", "--ramp", "--server-pid", "Exit codes"] {
        assert!(help.stdout.contains(word), "{word}");
    }
    assert_eq!(Loadgen::new().run("--version").code, Some(0));
}

#[test]
fn a_run_leaves_a_report_a_distribution_and_a_plot() {
    let loadgen = Loadgen::new();
    let target = stub();
    let ran = loadgen.run(&format!("push --target {target} {SHORT} --json r.json --hdr r.hgrm --arrivals constant"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("plot: loadgen-push.svg") && ran.stdout.ends_with("PASS\n"), "{ran:?}");
    // No terminal is there, so progress comes as lines.
    assert!(ran.stderr.contains("warming up"), "{ran:?}");

    let report: Value = serde_json::from_str(&loadgen.read("r.json")).unwrap();
    assert_eq!((&report["scenario"], &report["driver"]), (&"push".into(), &"queen".into()));
    assert_eq!((&report["target"], &report["pacing"]), (&target.into(), &"open-constant".into()));
    assert_eq!(report["interrupted"], false);
    for none in ["errors", "lost", "duplicated", "reordered", "corrupted"] {
        assert_eq!(report[none], 0, "{none}");
    }
    for number in ["sent", "rate_per_s", "duration_s"] {
        assert!(report[number].as_f64().unwrap() > 0.0, "{number}");
    }
    for latency in ["p50", "p90", "p99", "p999", "max", "mean"] {
        assert!(report["latency_us"][latency].as_f64().unwrap() > 0.0, "{latency}");
    }
    // The stub listens in this very process.
    for used in ["cpu_us_per_message", "rss_bytes", "peak_rss_bytes"] {
        assert!(report["server"][used].is_number(), "{used} in {}", report["server"]);
    }
    assert!(report["machine"]["kernel"].is_string() && report["commit"].is_string());
    assert_eq!(report["plan"]["connections"], 2);
    assert!(!report["percentiles"].as_array().unwrap().is_empty());
    assert!(!report["seconds"].as_array().unwrap().is_empty());

    assert!(loadgen.read("r.hgrm").contains("1/(1-Percentile)"));
    assert!(loadgen.read("loadgen-push.svg").contains("Latency by percentile"));
}

#[test]
fn json_on_stdout_is_alone_there() {
    let loadgen = Loadgen::new();
    let ran = loadgen.run(&format!("push --target {} {SHORT} --quiet --json -", stub()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["scenario"], "push");
    assert!(ran.stderr.starts_with("push · queen") && ran.stderr.ends_with("PASS\n"), "{ran:?}");
}

#[test]
fn a_closed_loop_is_labelled_as_blind() {
    let loadgen = Loadgen::new();
    let ran = loadgen
        .run(&format!("push --closed --target {} --duration 300ms --warmup 100ms --quiet --json r.json", stub()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("NOTE: blind to stalls"), "{ran:?}");
    let report: Value = serde_json::from_str(&loadgen.read("r.json")).unwrap();
    assert_eq!(
        (&report["pacing"], &report["note"]),
        (&"closed".into(), &"blind to stalls: coordinated omission".into())
    );
}

#[test]
fn flags_win_over_the_scenario_file() {
    let loadgen = Loadgen::new();
    loadgen.file("scenario.toml", &format!("scenario = 'push'\ntarget = '{}'\nrate = 5\nbatch = 1\nseed = 9", stub()));
    let ran = loadgen.run(&format!("scenario.toml {SHORT} --quiet --json r.json --plot p.svg"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&loadgen.read("r.json")).unwrap();
    assert_eq!((&report["plan"]["rate_per_s"], &report["plan"]["seed"]), (&200.0.into(), &9.into()));
    assert!(loadgen.path("p.svg").exists() && !loadgen.path("loadgen-push.svg").exists());
}

#[test]
fn reports_are_drawn_over_each_other() {
    let loadgen = Loadgen::new();
    let target = stub();
    for name in ["before", "after"] {
        let ran = loadgen.run(&format!("push --target {target} {SHORT} --quiet --json {name}.json"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let ran = loadgen.run("plot before.json after.json -o both.svg");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "plot: both.svg\n"));
    let svg = loadgen.read("both.svg");
    assert!(svg.contains("push: before, after") && svg.contains("after (queen"), "{svg}");
}

#[test]
fn an_sla_that_breaks_says_which_limit_and_by_how_much() {
    let loadgen = Loadgen::new();
    let target = stub();
    loadgen.file("loose.toml", "scenario = 'push'\n[limits]\np999 = '60s'");
    loadgen.file("tight.toml", "scenario = 'push'\n[limits]\np50 = '1ns'\np999 = '60s'\nserver_rss_bytes = 1");
    let ran = loadgen.run(&format!("sla loose.toml tight.toml --target {target} {SHORT} --quiet"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let p50 = ran.stdout.lines().find(|line| line.starts_with("  p50 is ")).expect(&ran.stdout);
    assert!(p50.contains("the limit is 0.0 µs") && p50.ends_with("% over"), "{p50}");
    assert!(ran.stdout.contains("  server_rss_bytes is ") && !ran.stdout.contains("p999 is"), "{ran:?}");
    assert!(ran.stdout.ends_with("FAIL: 1 of 2: tight.toml\n"), "{ran:?}");

    // A time is loosened, memory is not.
    loadgen.file("time.toml", "scenario = 'push'\n[limits]\np50 = '1us'");
    let ran = loadgen.run(&format!("sla time.toml --limits-factor 60000000 --target {target} {SHORT} --quiet"));
    assert_eq!((ran.code, ran.stdout.ends_with("PASS: 1 of 1\n")), (Some(0), true), "{ran:?}");
    let ran = loadgen.run(&format!("sla tight.toml --limits-factor 60000000000 --target {target} {SHORT} --quiet"));
    assert_eq!((ran.code, ran.stdout.contains("server_rss_bytes is")), (Some(1), true), "{ran:?}");
}

#[test]
fn a_limit_on_the_command_line_fails_a_run() {
    let ran = Loadgen::new().run(&format!("push --target {} {SHORT} --quiet --p99 1ns", stub()));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("FAIL\n  p99 is "), "{ran:?}");
}

#[test]
fn a_ramp_tells_every_rate_that_it_tried() {
    let loadgen = Loadgen::new();
    let arguments = "--ramp --rate 0.2 --duration 100ms --warmup 0s --connections 1 --p50 1ns --quiet --json r.json";
    let ran = loadgen.run(&format!("push --target {} {arguments}", stub()));
    // Nothing holds a nanosecond, however slowly it is asked for it.
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("does not hold"), "{ran:?}");
    let report: Value = serde_json::from_str(&loadgen.read("r.json")).unwrap();
    let steps = report["ramp"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!((&steps[1]["rate_per_s"], &steps[1]["held"]), (&0.1.into(), &false.into()));
}

#[test]
fn an_interruption_prints_what_was_measured_so_far() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let loadgen = Loadgen::new();
        let arguments = format!("push --target {} --rate 200 --duration 600s --warmup 100ms", stub());
        let mut child =
            loadgen.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut progress = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("/600.0 s") {
            line.clear();
            assert!(progress.read_line(&mut line).unwrap() > 0, "it ended before anything was measured");
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let drain = thread::spawn(move || std::io::copy(&mut progress, &mut std::io::sink()));
        let ran = Ran::new(&arguments, &child.wait_with_output().unwrap());
        drain.join().unwrap().unwrap();
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stdout.contains("stopped before its time") && ran.stdout.ends_with("PASS\n"), "{ran:?}");
        assert!(Path::exists(&loadgen.path("loadgen-push.svg")));
    }
}
