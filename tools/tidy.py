#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a compiler does not check. Run as the test `tidy`; prints one line a breach.

usage: tidy.py [ROOT] [--ratchet]

  arrows    a room includes only rooms on lower rows, never one beside it (tests, bench, examples may include all)
  libraries CAF only in actors/*.cc, nanobind only in python/, Cap'n Proto's headers only in .cc, toml++ only in config/
  words     no singletons, registries, bare `new`, getenv outside config/ and launcher/, TODO without a kind
  first     the SPDX line
  unused    every header is included by something
  length    files and functions may not grow beyond tools/lengths.txt; --ratchet lowers what has shrunk there
"""
import pathlib
import re
import sys

ROWS = {
    "base": 1, "config": 2, "placement": 3, "graph": 4, "kernels": 5, "comm": 6, "tables": 6, "data": 6, "plan": 7,
    "protocol": 8, "planner": 9, "checkpoint": 9, "actors": 10, "launcher": 11, "python": 12,
}
FREE = ("tests", "bench", "examples")
CODE = (".h", ".cc", ".cu", ".py", ".sh", ".cmake", ".capnp")
FILE_LINES, TEST_LINES, FUNCTION_LINES = 400, 600, 60  # what needs no entry in lengths.txt

LIBRARIES = [  # what is included, and the pattern of files that may
    (r"caf/", r"actors/.*\.cc$"),
    (r"nanobind/", r"python/.*"),
    (r"(capnp|kj)/|.*\.capnp\.h", r".*\.cc$|graph/wire\.h$|launcher/cluster/(loop|rpc)\.h$"),  # for few .cc only
    (r"toml\+\+/", r"config/.*"),
    (r"openssl/", r"base/hmac\.cc$"),
    (r"CLI/", r"launcher/.*\.(cc|h)$"),
    (r"cblas\.h", r"(kernels|bench)/.*\.cc$"),
    (r"(ucp|uct|ucs)/", r"comm/ucx/library\.h$"),
]
WORDS = [  # pattern, why, files that may
    (r"\w*[Ss]ingleton\b", "a singleton", r"$^"),
    (r"\bREGISTER_\w+", "a registry macro", r"$^"),
    # A user's own UCX_* wins over what the transport sets.
    (r"\bgetenv\b", "getenv outside of config and launcher", r"(config|launcher|tests)/|comm/ucx/library\.cc$"),
    # Handed straight to a smart pointer it is none; CAF and nanobind take ownership of what they are given.
    (r"(?<![\w.(])new\s+(?!\()[A-Za-z_:]", "a bare new expression", r"python/.*\.cc$|actors/host_caf\.cc$"),
    (r"\b(TODO|FIXME|XXX)\b(?!\([a-z]+\): )", "write TODO(kind): why", r"$^"),
    (r"\busing namespace std;", "using namespace std", r"$^"),
    (r"\bsleep_for\b", "a sleep instead of a wait", r"(kernels/device/sim|actors/|tests/|bench/).*"),
]


def code_only(text):
    """Comments and strings blanked, line breaks kept."""
    def blank(match):
        found = match.group(0)
        return re.sub(r"[^\n]", " ", found) if found[0] == "/" else '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'
    return re.sub(r'R"(\w*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*(?s:.*?)\*/', blank, text)


def functions(text):
    """(name, lines) of the functions of a C++ file formatted by clang-format: they start at column 0."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        head = re.match(r"^(?![\s}#/]|namespace|class|struct|enum|extern|union|using|constexpr \w+ \w+\[)(.*)", lines[i])
        if head and "(" in lines[i]:
            start = i
            while i < len(lines) and not re.search(r"[{;]\s*$", lines[i]):
                i += 1
            if i < len(lines) and lines[i].rstrip().endswith("{"):
                while i < len(lines) and not lines[i].startswith("}"):
                    i += 1
                name = re.search(r"([\w:~]+)\s*\(", lines[start])
                if i < len(lines) and not lines[i].startswith("};"):
                    yield (name.group(1) if name else "?"), i - start + 1
        i += 1


class Tidy:
    def __init__(self, root):
        self.root = root
        self.breaches = []
        self.lengths = {}
        self.files = [
            p for p in sorted(root.rglob("*"))
            if p.is_file() and not any(part in ("build", "__pycache__") or (part.startswith(".") and part != ".ci")
                                       for part in p.relative_to(root).parts)
        ]

    def breach(self, path, line, why):
        self.breaches.append(f"{path}:{line}: {why}" if line else f"{path}: {why}")

    def check_includes(self, path, text):
        room = path.split("/")[0]
        for n, line in enumerate(text.split("\n"), 1):
            include = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
            if not include:
                continue
            target = include.group(1)
            other = target.split("/")[0]
            if '"' in line and other in ROWS and room in ROWS and other != room and ROWS[other] >= ROWS[room]:
                self.breach(path, n, f"{room} (row {ROWS[room]}) includes {other} (row {ROWS[other]})")
            if '"' in line and other in FREE and room in ROWS and not path.endswith("_test.cc"):
                self.breach(path, n, f"{room} includes {other}")
            for library, allowed in LIBRARIES:
                if re.match(library, target) and not re.match(allowed, path):
                    self.breach(path, n, f"{target} is not for this file")

    def check_words(self, path, text):
        for n, line in enumerate(code_only(text).split("\n"), 1):
            for pattern, why, allowed in WORDS:
                if re.search(pattern, line) and not re.match(allowed, path) and "TODO" not in pattern:
                    self.breach(path, n, why)
        for n, line in enumerate(text.split("\n"), 1):
            if re.search(WORDS[4][0], line) and path != "tools/tidy.py":
                self.breach(path, n, WORDS[4][1])

    def check_lengths(self, path, text, allowed):
        found = {path: text.count("\n")}
        for name, lines in functions(code_only(text)):
            key = f"{path} {name}"
            found[key] = max(lines, found.get(key, 0))
        for key, lines in found.items():
            normal = FUNCTION_LINES if " " in key else TEST_LINES if path.endswith("_test.cc") else FILE_LINES
            if lines > normal:
                self.lengths[key] = lines
            if lines > max(normal, allowed.get(key, 0)):
                self.breach(path, 0, f"{key.split(' ')[-1]} has {lines} lines; {max(normal, allowed.get(key, 0))} are allowed")

    def check_unused(self):
        included = set()
        for path in self.files:
            if path.suffix in (".h", ".cc", ".cu"):
                included |= set(re.findall(r'#\s*include\s+"([^"]+)"', path.read_text(errors="replace")))
        build = (self.root / "cmake/table.cmake")
        included |= set(re.findall(r"[\w/]+\.h", build.read_text())) if build.exists() else set()
        for path in self.files:
            name = str(path.relative_to(self.root))
            if path.suffix == ".h" and name not in included:
                self.breach(name, 0, "no file includes this header")

    def run(self, allowed):
        for path in self.files:
            name = str(path.relative_to(self.root))
            if path.suffix not in CODE and path.name not in ("Makefile",):
                continue
            text = path.read_text(errors="replace")
            if path.suffix in (".h", ".cc", ".cu", ".py", ".capnp") and text.strip():
                if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:2]):
                    self.breach(name, 1, "the SPDX line is missing")
            if path.suffix in (".h", ".cc", ".cu"):
                self.check_includes(name, text)
                self.check_words(name, text)
                self.check_lengths(name, text, allowed)
        self.check_unused()
        return self.breaches


def main():
    arguments = [a for a in sys.argv[1:] if a != "--ratchet"]
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    table = root / "tools/lengths.txt"
    lines = table.read_text().splitlines() if table.exists() else []
    allowed = {key: int(n) for n, key in (line.split(" ", 1) for line in lines if line and line[0] != "#")}
    tidy = Tidy(root)
    breaches = tidy.run(allowed)
    if "--ratchet" in sys.argv:
        kept = [f"{min(n, allowed[key])} {key}" for key, n in sorted(tidy.lengths.items()) if key in allowed]
        head = "# What is longer than tools/tidy.py allows, and how long it may be. Only ever lowered.\n"
        table.write_text(head + "".join(line + "\n" for line in kept))
    for breach in breaches:
        print(breach)
    print(f"tidy: {len(tidy.files)} files, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
