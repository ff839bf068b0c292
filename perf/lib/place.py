"""Where a comparison takes place: the machine, its cores, the commit. Every result carries them."""

import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def machine():
    """The machine in four figures."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / (1 << 20), 1),
        "kernel": platform.release(),
    }


def machine_text(at):
    """The same as a phrase."""
    return f"{at['cores']} cores of {at['cpu']}, {at['memory_gib']} GiB, Linux {at['kernel']}"


def commit():
    """The checkout's commit; says so where files are changed."""

    def git(*words):
        try:
            return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        except OSError:
            return ""

    changed = bool(git("status", "--porcelain", "--untracked-files=no"))
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" with changes" if changed else "")


def cores_problem(*wanted):
    """Why these cores cannot be had, one each; None if they can."""
    if len(set(wanted)) < len(wanted) or set(wanted) - os.sched_getaffinity(0):
        return "server and load need a core each that this process may use"
    return None
