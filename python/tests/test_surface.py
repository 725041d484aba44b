# SPDX-License-Identifier: Apache-2.0
"""What users see stays as it is, is typed, and is what the docs say."""

import difflib
import pathlib
import re
import subprocess
import sys

import pytest
import surface

import sluice as sl

ROOT = surface.ROOT


def test_surface_is_as_written_down():
    difference = list(
        difflib.unified_diff(surface.GOLDEN.read_text().splitlines(), surface.surface().splitlines(), lineterm="", n=0)
    )
    assert not difference, (
        "the surface of the package changed:\n" + "\n".join(difference) + "\nIf that is meant, say so in CHANGELOG.md "
        "and run python/tests/surface.py --write in the same commit."
    )
    mark = surface.mark(surface.GOLDEN.read_text())
    assert mark in (ROOT / "CHANGELOG.md").read_text(), f"say in CHANGELOG.md what changed, and put there: {mark}"


def test_everything_public_is_documented():
    import inspect

    missing = []
    for module in (sl, sl.nn, sl.nn.functional, sl.optim, sl.data, sl.callbacks):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and not (value.__doc__ or "").strip():
                missing.append(f"{module.__name__}.{name}")
            if inspect.isclass(value):
                missing += [
                    f"{module.__name__}.{name}.{key}"
                    for key, item in vars(value).items()
                    if not key.startswith("_") and inspect.isfunction(item) and not (item.__doc__ or "").strip()
                ]
    assert not missing


def test_stubs_and_package_pass_mypy(tmp_path):
    folder = pathlib.Path(sl.__file__).parent
    for stub in ("_ops.pyi", "_methods.pyi", "nn/functional.pyi", "_sluice.pyi", "py.typed"):
        assert (folder / stub).exists(), f"the build did not write {stub}"
    user = tmp_path / "user.py"
    user.write_text(
        "import sluice as sl\n"
        "from sluice import nn, optim\n"
        "class Net(nn.Module):\n"
        "    def __init__(self) -> None:\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(3, 2)\n"
        "    def forward(self, x: sl.Tensor) -> sl.Tensor:\n"
        "        return sl.relu(self.fc(x)).sum(axis=1) + nn.functional.dropout(x, 0.1).mean()\n"
        "job = sl.Job(Net(), loss=nn.functional.cross_entropy, optimizer=optim.Adam(1e-3))\n"
        "loss: float = job.evaluate([1.0])['loss']\n"
        "reveal_type(sl.exp(sl.asarray(1.0)) * 2)\n"
        "sl.sum(1.0, axes=3)\n"
    )
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-sluice._sluice]\ndisallow_any_generics = false\n"
                      "[mypy-user]\ndisallow_any_unimported = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path / "cache", user],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert any('Revealed type is "sluice._tensor.Tensor"' in line for line in lines), done.stdout + done.stderr
    assert [line for line in lines if "error" in line and "Found" not in line] == [
        next(line for line in lines if 'Unexpected keyword argument "axes"' in line)
    ], done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path / "cache", "-p", "sluice"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def blocks():
    """Python code blocks of the README and the docs. A block that starts with `# continues` goes on with the last."""
    for file in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*/README.md"))]:
        found = []
        for code in re.findall(r"^```python\n(.*?)^```", file.read_text(), re.M | re.S):
            if code.startswith("# continues"):
                found[-1] += code
            else:
                found.append(code)
        for i, code in enumerate(found):
            yield pytest.param(code, id=f"{file.relative_to(ROOT)}:{i}")


@pytest.mark.parametrize("code", list(blocks()))
def test_code_blocks_of_the_docs_run(code, tmp_path):
    """Each in a folder of its own, with the file that the README shows as parallel.toml."""
    script = tmp_path / "block.py"
    script.write_text(code)
    (tmp_path / "parallel.toml").write_text("[mesh]\naxes = { dp = 2, tp = 2 }\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_learns(tmp_path):
    """The demo's script on the real data, one epoch on one device."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples/fashion_mnist.py", "--epochs", "1", "--save", tmp_path / "net.safetensors"],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(re.search(r"test accuracy (\S+)", done.stdout)[1]) > 0.8
    assert "dp=2 tp=2" in done.stdout and "\r" not in done.stdout
    assert sl.load_safetensors(tmp_path / "net.safetensors")["fc1.weight"].shape == (512, 784)
