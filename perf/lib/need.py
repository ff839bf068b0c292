"""What a comparison runs: builds it where it is not given, installs it where it is missing, or says how to."""

import os
import pathlib
import shutil
import subprocess

from .children import Failed
from .place import ROOT


def need_commands(packages):
    """Installs the Debian packages (values) whose commands (keys) are missing."""
    missing = sorted({package for command, package in packages.items() if not shutil.which(command)})
    if missing:
        install_debian(missing)


def install_debian(packages):
    """Installs Debian packages where this is root or `sudo -n` works, or says what to run."""
    by_hand = f"run: apt-get install {' '.join(packages)}"
    print(f"installing {' '.join(packages)}", flush=True)
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*as_root, "apt-get", "install", "-y", "--no-install-recommends", *packages]
    quietly = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    }
    try:
        if subprocess.run(install, **quietly).returncode != 0:
            # The lists may be old or, in an image, not there at all.
            subprocess.run([*as_root, "apt-get", "update"], check=True, **quietly)
            subprocess.run(install, check=True, **quietly)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(f"{', '.join(packages)}: missing, and could not be installed; {by_hand}") from error


def target_dir():
    """Where cargo builds."""
    return ROOT / pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))


def built(given):
    """Paths of the workspace's release binaries by package: as given, or built now."""
    executables = {"queen": "queen", "loadgen": "loadgen", "queen-floor": "floor"}
    missing = [package for package, path in given.items() if path is None]
    if missing:
        command = ["cargo", "build", "--release", *(word for package in missing for word in ("-p", package))]
        try:
            subprocess.run(command, cwd=ROOT, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failed(f"{' '.join(command)} failed: {error}") from error
    paths = {
        package: pathlib.Path(path).resolve() if path else target_dir() / "release" / executables[package]
        for package, path in given.items()
    }
    for package, path in paths.items():
        if not os.access(path, os.X_OK):
            raise Failed(f"{package}: {path} is no program")
    return paths


def installed_crate(crate, version, executable, root):
    """Path of a crate's executable below `root`, installed now if it is not there in this version."""
    path = root / "bin" / executable
    record = root / ".crates.toml"
    if path.exists() and record.exists() and f"{crate} {version} " in record.read_text():
        return path
    print(f"installing {crate} {version} below {root} (minutes)", flush=True)
    command = ["cargo", "install", crate, "--version", version, "--root", str(root)]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(f"{crate}: could not be installed; run: {' '.join(command)}") from error
    return path
