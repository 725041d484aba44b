#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds everything, installs the wheel into .venv, runs every test, and sums up: what `make test` does after set-up.

usage: check.py [--build-only] [--no-sanitizers]

The last line is `N passed, N failed`: cases of GoogleTest and pytest, and one for every other CTest.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTHON = ROOT / ".venv/bin/python"


class Sum:
    def __init__(self):
        self.passed = 0
        self.failed: list[str] = []
        self.skipped: list[str] = []


def say(text):
    print(f"== {text}", flush=True)


def run(*command, log=None):
    """Runs a command in the project's folder; True when it succeeds. With `log`, output is shown only on failure."""
    start = time.monotonic()
    output = subprocess.PIPE if log else None
    done = subprocess.run([str(c) for c in command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True)
    if log:
        if done.returncode:
            print(done.stdout, flush=True)
        say(f"{log}: {time.monotonic() - start:.0f} s")
    return done.returncode == 0


def build(preset, targets=()):
    say(f"build {preset}")
    return run("cmake", "--preset", preset, log=f"configure {preset}") and run(
        "cmake", "--build", "--preset", preset, "--", "-j", os.cpu_count(), *targets
    )


def digest(paths):
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return h.hexdigest()


def install_wheel():
    """Packs the wheel from build/release and installs it, when what goes into it has changed."""
    inputs = [p for p in (ROOT / "python/sluice").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    inputs += [ROOT / "pyproject.toml", BUILD / "release/sluice", BUILD / "release/libsluice.so"]
    inputs += [p for part in ("module", "stubs") for p in (BUILD / "release" / part).iterdir() if p.is_file()]
    stamp, wanted = ROOT / ".venv/.wheel", digest(inputs)
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    stamp.unlink(missing_ok=True)
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "-q"]
    for old in BUILD.glob("wheel/*.whl"):
        old.unlink()
    done = run(*pip, "wheel", ROOT, "--no-deps", "--no-build-isolation", "--no-index", "-w", BUILD / "wheel", log="wheel")
    wheels = list(BUILD.glob("wheel/*.whl"))
    done = done and run(*pip, "install", "--no-deps", "--no-index", "--force-reinstall", *wheels, log="install wheel")
    if done:
        stamp.write_text(wanted)
    return done


def count_xml(path, name, total):
    """Adds the cases of one JUnit-like file."""
    for case in xml.parse(path).getroot().iter("testcase"):
        full = f"{name}: {case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            total.failed.append(full)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            total.skipped.append(full)
        else:
            total.passed += 1


def ctest(preset, total):
    say(f"test {preset}")
    results = BUILD / preset / "results"
    results.mkdir(exist_ok=True)
    for old in results.glob("*.xml"):
        old.unlink()
    summary = BUILD / preset / "ctest.xml"
    summary.unlink(missing_ok=True)
    run("ctest", "--test-dir", BUILD / preset, "-j2", "--output-on-failure", "--no-tests=error", "--output-junit", summary)
    if not summary.exists():
        total.failed.append(f"{preset}: ctest did not run")
        return
    for test in xml.parse(summary).getroot().iter("testcase"):
        name, failed, before = test.get("name"), test.get("status") != "run", len(total.failed)
        result = results / f"{name}.xml"
        if result.exists():
            count_xml(result, f"{preset} {name}", total)
        elif not failed:
            total.passed += 1
        if failed and len(total.failed) == before:  # it crashed, ran out of time, or is no GoogleTest
            total.failed.append(f"{preset} {name}")


def pytest(total):
    say("test python")
    result = BUILD / "pytest.xml"
    result.unlink(missing_ok=True)
    ran = run(PYTHON, "-m", "pytest", f"--junitxml={result}")
    before = len(total.failed)
    if result.exists():
        count_xml(result, "python", total)
    if not ran and len(total.failed) == before:
        total.failed.append("python: pytest did not run to its end")


def check(total):
    if not build("release") or not install_wheel():
        total.failed.append("build release")
        return
    ctest("release", total)
    pytest(total)
    if "--no-sanitizers" in sys.argv:
        return
    for preset in ("asan", "tsan"):
        if build(preset):
            ctest(preset, total)
        else:
            total.failed.append(f"build {preset}")


def main():
    unknown = [a for a in sys.argv[1:] if a not in ("--build-only", "--no-sanitizers")]
    if unknown:
        print(f"check.py: unknown argument {unknown[0]}\n\n{__doc__}", file=sys.stderr)
        return 64
    os.environ["CLICOLOR_FORCE"] = "0"
    # The build folders share what they compile alike.
    os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    if "--build-only" in sys.argv:
        return 0 if build("release", ["sluice_wheel"]) and install_wheel() else 1
    start, total = time.monotonic(), Sum()
    check(total)
    for name in total.skipped:
        print(f"skipped: {name}")
    for name in total.failed:
        print(f"failed: {name}")
    say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    print(f"{total.passed} passed, {len(total.failed)} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
