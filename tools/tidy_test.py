#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one breach of each rule in a small tree and expects tidy to name it, and nothing else."""
import pathlib
import tempfile
import unittest

import tidy

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class TidyTest(unittest.TestCase):
    def breaches(self, files, allowed=None):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return tidy.Tidy(root).run(allowed or {})

    def one(self, name, text, why, **more):
        found = self.breaches({name: SPDX + text}, **more)
        self.assertEqual(len(found), 1, found)
        self.assertIn(why, found[0])

    def none(self, name, text):
        self.assertEqual(self.breaches({name: SPDX + text}), [])

    def test_arrows(self):
        self.one("plan/a.cc", '#include "actors/floor.h"\n', "plan (row 7) includes actors (row 10)")
        self.one("planner/a.cc", '#include "checkpoint/x.h"\n', "planner (row 9) includes checkpoint (row 9)")
        self.one("base/a.cc", '#include "tests/x.h"\n', "base includes tests")
        self.none("actors/a.cc", '#include "plan/plan.h"\n')
        self.none("tests/a_test.cc", '#include "python/x.h"\n')

    def test_libraries(self):
        self.one("planner/a.cc", "#include <caf/all.hpp>\n", "caf/all.hpp is not for this file")
        self.one("launcher/a.cc", "#include <nanobind/nanobind.h>\n", "is not for this file")
        self.assertEqual(len(self.breaches({"plan/a.h": SPDX + "#include <capnp/message.h>\n"})), 2)  # and it is unused
        self.none("actors/a.cc", "#include <caf/all.hpp>\n")

    def test_words(self):
        self.one("base/a.cc", "int* p = new int;\n", "bare new")
        self.none("base/a.cc", "std::unique_ptr<int> p(new int);  // a new idea\n")
        self.none("base/a.cc", 'auto s = "a new day";\nauto t = new (place) int;\n')
        self.one("base/a.cc", "class OpSingleton;\n", "singleton")
        self.one("base/a.cc", "REGISTER_OP(x)\n", "registry")
        self.one("base/a.cc", 'auto x = std::getenv("HOME");\n', "getenv")
        self.none("launcher/a.cc", 'auto x = std::getenv("HOME");\n')
        self.one("base/a.cc", "// TODO: later\n", "TODO(kind)")
        self.none("base/a.cc", "// TODO(perf): block it\n")
        self.none("base/a.cc", "using namespace std::chrono_literals;\n")

    def test_licence(self):
        self.assertIn("SPDX", self.breaches({"base/a.cc": "int x;\n"})[0])

    def test_unused(self):
        self.one("base/a.h", "int x;\n", "no file includes this header")
        self.assertEqual(self.breaches({"base/a.h": SPDX, "base/a.cc": SPDX + '#include "base/a.h"\n'}), [])

    def test_lengths(self):
        body = "int f(int a) {\n" + "  ++a;\n" * 70 + "  return a;\n}\n"
        self.one("base/a.cc", body, "f has 73 lines; 60 are allowed")
        self.assertEqual(self.breaches({"base/a.cc": SPDX + body}, {"base/a.cc f": 73}), [])
        self.one("base/a.cc", "int x;\n" * 450, "a.cc has 451 lines; 400 are allowed")
        self.none("base/a.cc", "const int table[] = {\n" + "    1,\n" * 100 + "};\n")


if __name__ == "__main__":
    unittest.main()
