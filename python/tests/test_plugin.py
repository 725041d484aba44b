# SPDX-License-Identifier: Apache-2.0
"""The example op of one file outside of the tree: built by g++ alone, it trains under tensor parallelism."""

import pathlib
import subprocess

import numpy as np
import pytest
from surface import ROOT

import sluice as sl
from sluice import nn, optim


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    library = tmp_path_factory.mktemp("plugin") / "swish.so"
    site = pathlib.Path(sl.__file__).parent
    command = ["g++", "-std=c++20", "-O1", "-fopenmp-simd", "-Wall", "-Wextra", "-Werror",
               "-Wno-missing-field-initializers", "-fPIC", "-shared", f"-I{ROOT}",
               ROOT / "examples/plugin/swish.cc", "-o", library, f"-L{site}", "-lsluice"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


def swish(x, beta):
    return x / (1 + np.exp(-beta * x))


def test_a_plugins_op_is_as_any_op(plugin):
    ops = sl.load_ops(plugin)
    assert list(vars(ops)) == ["swish"] and "beta: How steep" in ops.swish.__doc__
    x = np.linspace(-3, 3, 20).reshape(4, 5)
    np.testing.assert_allclose(ops.swish(x, 1.5).numpy(), swish(x, 1.5), rtol=1e-12)
    grad = sl.grad(lambda a: (ops.swish(a, beta=1.5) * 2.0).sum())(sl.asarray(x)).numpy()
    np.testing.assert_allclose(grad, (swish(x + 1e-6, 1.5) - swish(x - 1e-6, 1.5)) / 1e-6, rtol=1e-5, atol=1e-8)
    with pytest.raises(TypeError, match="'beta' must be a number"):
        ops.swish(x, beta="steep")


def make_job(plugin):
    ops = sl.load_ops(plugin)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(6, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.fc2(ops.swish(self.fc1(x), 1.5))

    return sl.Job(Net(), loss=nn.functional.cross_entropy, optimizer=optim.Adam(1e-2))


def test_it_trains_under_tp2(plugin, data, tmp_path):
    x, y = data
    alone = make_job(plugin).fit(x, y, epochs=3, batch=16, verbose=False).history["loss"]
    config = tmp_path / "tp2.toml"
    config.write_text(f'[mesh]\naxes = {{ tp = 2 }}\n[plugins]\nops = ["{plugin}"]\n')
    job = make_job(plugin)
    split = job.fit(x, y, epochs=3, batch=16, config=config, verbose=False).history["loss"]
    np.testing.assert_allclose(split, alone, rtol=1e-5)
    assert alone[2] < alone[0]
    assert f'plugin {plugin}' in job.plan(batch=16).text, "the plan holds the hash of what it runs"


def test_a_config_lists_the_plugins_that_its_jobs_use(plugin, data):
    x, y = data
    with pytest.raises(sl.ConfigError, match=r"swish.so, which \[plugins\] does not list"):
        make_job(plugin).fit(x, y, config={"mesh": {"axes": {"tp": 2}}}, verbose=False)


def test_what_is_no_plugin_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.so"):
        sl.load_ops(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("not an object")
    with pytest.raises(OSError, match="text.so"):
        sl.load_ops(tmp_path / "text.so")
