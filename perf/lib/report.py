"""The result of a comparison as JSON, as Markdown, and as a plot for each contest."""

import datetime
import json
import shutil
import subprocess

from .contests import METRICS
from .numbers import Ratio, median, median_round, verdict
from .place import commit, machine, machine_text
from .turns import medians

MIB = 1 << 20
CLOSED_LOOP = "Closed loop: the next request leaves when the last one was answered, which is blind to stalls."


def judged(contest, placement, rounds):
    """Each limit of a contest with what was found."""
    ours = contest.sides[0].name

    def column(side, metric):
        return [measured[side].get(metric) for measured in rounds]

    for limit in contest.limits:
        row = {
            "contest": contest.name,
            "title": contest.title,
            "placement": placement,
            "metric": limit.metric,
            "beside": limit.beside,
            "at_most": limit.at_most,
        }
        if limit.beside:
            ratio = Ratio.of(column(ours, limit.metric), column(limit.beside, limit.metric))
            found = {} if ratio is None else {"value": ratio.median, "min": ratio.smallest, "max": ratio.largest}
        else:
            measured = [value for value in column(ours, limit.metric) if value is not None]
            found = {"value": median(measured), "min": min(measured), "max": max(measured)} if measured else {}
        yield row | {key: round(value, 4) for key, value in found.items()} | {
            "verdict": verdict(found.get("value"), limit.at_most)
        }


def ratios(contest, rounds):
    """All ratios of ours over each other side, limited or not."""
    ours = contest.sides[0].name
    found = {}
    for side in contest.sides[1:]:
        columns = {
            metric: Ratio.of(*([measured[name].get(metric) for measured in rounds] for name in (ours, side.name)))
            for metric in ("p50", "p99", "p999", "cpu_us", "with_store_us", "peak_bytes", "interval_us")
        }
        found[side.name] = {
            metric: {"median": round(ratio.median, 4), "min": round(ratio.smallest, 4), "max": round(ratio.largest, 4)}
            for metric, ratio in columns.items()
            if ratio
        }
    return found


def tail(results):
    """The longest latency of the broker in any run. A wait that nobody ended lasts as long as its poll, or is lost."""
    longest = [
        (measured[side.name]["max"], f"{contest.title}, {placement}")
        for (contest, placement), rounds in results.items()
        for side in contest.sides
        if side.server == "queen"
        for measured in rounds
        if measured[side.name].get("max")
    ]
    return max(longest, default=None)


def faults(results):
    """What the checks of the load generator found, by side: sentences."""
    for (contest, placement), rounds in results.items():
        for number, measured in enumerate(rounds, 1):
            for side in contest.sides:
                for kind, count in measured[side.name]["faults"].items():
                    yield side, f"{side.name}: {count:,} {kind} ({contest.title}, {placement}, round {number})"


def write(output, command, turns, results, versions, plot_with):
    """Writes compare-DATE.json, .md and the plots of compare-DATE/ into `output`. Returns the Markdown."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    name = f"compare-{date[:10]}"
    output.mkdir(parents=True, exist_ok=True)
    plots = output / name
    shutil.rmtree(plots, ignore_errors=True)
    longest = tail(results)
    result = {
        "date": date,
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "peers": versions,
        "rounds": turns.timing.rounds,
        "warmup_s": turns.timing.warmup_s,
        "measured_s": turns.timing.measured_s,
        "limits": [row for held, rounds in results.items() for row in judged(*held, rounds)],
        "longest_us": longest and {"value": longest[0], "where": longest[1]},
        "faults": [text for _, text in faults(results)],
        "contests": [
            contest_result(turns, contest, placement, rounds)
            | {"plot": plot(plots, contest, placement, rounds, plot_with)}
            for (contest, placement), rounds in results.items()
        ],
    }
    (output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (output / f"{name}.md").write_text(text)
    return text


def contest_result(turns, contest, placement, rounds):
    """All that was measured of a contest in one placement."""
    return {
        "name": contest.name,
        "title": contest.title,
        "placement": placement,
        "commands": {side.name: command_text(turns, contest, placement, side, rounds) for side in contest.sides},
        "medians": {side.name: medians(rounds, side.name) for side in contest.sides},
        "ratios": ratios(contest, rounds),
        "rounds": [{side: figures(run) for side, run in measured.items()} for measured in rounds],
    }


def figures(run):
    """A measurement without the path of its scratch file."""
    return {metric: value for metric, value in run.items() if metric != "report"}


def command_text(turns, contest, placement, side, rounds):
    """What put the load on a side, to be typed again."""
    if side.generator == "wrk":
        return "wrk -t1 -c16 -s perf/wrk/push.lua"
    pace = contest.pace
    if contest.share_of_peak:
        pace = ("--rate", f"{rounds[0][side.name]['paced_per_s']:.0f}", "--arrivals", "poisson")
    return " ".join([*turns.load_command(contest, placement, side), *pace])


def plot(plots, contest, placement, rounds, plot_with):
    """Draws all sides of the round in which ours had its median latency over each other. The file's name, if drawn."""
    is_the_contests_own = placement == contest.placements[0]
    number = median_round([measured[contest.sides[0].name].get("p50") for measured in rounds])
    if not is_the_contests_own or number is None:
        return None
    # A side without a latency, such as wrk's, has no curve.
    reports = [run["report"] for run in rounds[number].values() if run.get("p50") and "report" in run]
    plots.mkdir(parents=True, exist_ok=True)
    file = plots / f"{contest.name}.svg"
    drawn = subprocess.run([plot_with, "plot", *reports, "-o", file], capture_output=True, text=True)
    if drawn.returncode != 0:
        print(f"no plot of {contest.name}: {drawn.stderr.strip()}", flush=True)
        return None
    return f"{plots.name}/{file.name}"


def markdown(result):
    """The result for people."""
    lines = [
        f"# The broker beside others, {result['date'][:10]}",
        "",
        f"`{result['command']}` at {result['commit']}, on {machine_text(result['machine'])}.",
        "",
        f"Rounds: {result['rounds']}. Each side in turns, {result['measured_s']:g} s after {result['warmup_s']:g} s of"
        " warm-up, on a server that was started for that run. A ratio is ours over the other's within one round; the"
        " figure is the median of the rounds, in brackets the smallest and the largest. *Pinned*: the server on core 0,"
        " the load on core 1. *Free*: both where the kernel puts them, but for the broker's own shards. One data shard"
        " (`QUEEN_DATA_CPUS=0`) where nothing else is said. [How to read this](../README.md).",
        "",
        *(f"- {version}" for version in result["peers"].values()),
        "",
        "## Limits",
        "",
        "| what | beside | placement | figure | found | at most | |",
        "|---|---|---|---|---|---|---|",
        *map(limit_row, result["limits"]),
    ]
    if result["longest_us"]:
        longest_us, where = result["longest_us"].values()
        lines += ["", f"The longest latency of ours in any run: {figure('max', longest_us)} ({where})."]
    if result["faults"]:
        lines += ["", "What the load generator's checks found:", "", *(f"- {text}" for text in result["faults"])]
    for contest in result["contests"]:
        lines += contest_section(contest)
    return "\n".join(lines) + "\n"


def limit_text(row):
    """A limit and what was found, in a line for a terminal."""
    found, at_most = limit_figures(row)
    beside = f" over {row['beside']}" if row["beside"] else ""
    return f"{row['verdict']}: {METRICS[row['metric']]}{beside} {found}, at most {at_most}"


def limit_row(row):
    """The same as a row of the Markdown."""
    found, at_most = limit_figures(row)
    held = {"not held": "**not held**"}.get(row["verdict"], row["verdict"])
    beside, metric = row["beside"] or "—", METRICS[row["metric"]]
    return f"| {row['title']} | {beside} | {row['placement']} | {metric} | {found} | {at_most} | {held} |"


def limit_figures(row):
    """What was found and what is the most, as ratios or with their unit."""
    show = (lambda value: f"{value:.2f}") if row["beside"] else (lambda value: figure(row["metric"], value))
    found = f"{show(row['value'])} ({show(row['min'])} to {show(row['max'])})" if "value" in row else "—"
    return found, show(row["at_most"])


def contest_section(contest):
    title = contest["title"][0].upper() + contest["title"][1:]
    lines = ["", f"## {title}, {contest['placement']}", ""]
    commands = list(dict.fromkeys(f"`{command}`" for command in contest["commands"].values()))
    lines += [", ".join(commands) + ("" if "--rate" in commands[0] else f". {CLOSED_LOOP}"), ""]
    measured = {metric for values in contest["medians"].values() for metric, value in values.items() if value}
    # The time a message stands in the rate.
    columns = [metric for metric in METRICS if metric in measured - {"interval_us"}]
    lines += ["| medians | rate | " + " | ".join(METRICS[metric] for metric in columns) + " |"]
    lines += ["|---" * (len(columns) + 2) + "|"]
    for side, values in contest["medians"].items():
        cells = [figure(metric, values.get(metric)) for metric in columns]
        lines.append(f"| {side} | {values['rate_per_s']:,.0f}/s | " + " | ".join(cells) + " |")
    for side, found in contest["ratios"].items():
        cells = [str(Ratio(*found[metric].values())) if metric in found else "—" for metric in columns]
        # The ratio of times a message, turned over, is the ratio of rates.
        rate = f"{1 / found['interval_us']['median']:.2f}" if "interval_us" in found else "—"
        lines.append(f"| *ours over {side}* | {rate} | " + " | ".join(cells) + " |")
    if contest["plot"]:
        lines += ["", f"![{contest['title']}]({contest['plot']})"]
    return lines


def figure(metric, value):
    """A measured value with its unit."""
    if value is None:
        return "—"
    if metric == "peak_bytes":
        return f"{value / MIB:,.1f} MiB"
    if metric == "bytes_each":
        return f"{value:,.0f} bytes"
    return f"{value / 1000:,.2f} ms" if value >= 10_000 else f"{value:,.1f} µs"
