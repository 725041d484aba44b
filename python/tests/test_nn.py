# SPDX-License-Identifier: Apache-2.0
"""Modules: names, state, initial values, errors."""

import math

import numpy as np
import pytest
from conftest import Net

import sluice as sl
from sluice import nn


def test_state_dict_has_pytorchs_names_and_layouts():
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2, bias=False))
    shapes = {name: value.shape for name, value in net.state_dict().items()}
    assert shapes == {"1.weight": (5, 8), "1.bias": (5,), "4.weight": (2, 5)}
    assert [n for n, _ in net.named_modules()] == ["", "0", "1", "2", "3", "4"]
    assert len(net) == 5 and net[1].out_features == 5 and list(net)[2] is net[2]


def test_nested_names_and_repr():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(np.ones(3, "float32"), requires_grad=False)
            self.inner = nn.Sequential(nn.Linear(3, 3))

    block = nn.Sequential(Block(), Block())
    assert list(block.state_dict()) == [
        "0.scale", "0.inner.0.weight", "0.inner.0.bias", "1.scale", "1.inner.0.weight", "1.inner.0.bias",
    ]  # fmt: skip
    assert "(inner): Sequential(" in repr(block) and "in_features=3" in repr(block)


def test_initial_values_are_pytorchs_and_depend_on_name_and_seed_alone():
    weights = nn.Linear(400, 300).weight.numpy()
    bound = 1 / math.sqrt(400)
    assert abs(weights).max() <= bound and abs(weights.std() - bound / math.sqrt(3)) < 0.02 * bound
    one, two = Net(), Net()
    np.testing.assert_array_equal(one.fc1.weight.numpy(), two.state_dict()["fc1.weight"].numpy())
    assert (one.fc1.bias.numpy()[:3] != one.fc2.bias.numpy()).all()
    jobs = [sl.Job(Net(), seed=s).state_dict() for s in (0, 0, 1)]
    np.testing.assert_array_equal(jobs[0]["fc1.weight"].numpy(), one.fc1.weight.numpy())
    np.testing.assert_array_equal(jobs[0]["fc1.weight"].numpy(), jobs[1]["fc1.weight"].numpy())
    assert (jobs[0]["fc1.weight"].numpy() != jobs[2]["fc1.weight"].numpy()).any()


def test_load_state_dict():
    net = Net()
    state = {n: np.full(v.shape, i, "float64") for i, (n, v) in enumerate(net.state_dict().items())}
    assert net.load_state_dict(state) == ([], [])
    assert net.fc2.weight.numpy().dtype == np.float32 and (net.fc2.weight.numpy() == 2).all()
    assert net.load_state_dict({"fc1.bias": state["fc1.bias"], "else": 1}, strict=False) == (
        ["fc1.weight", "fc2.weight", "fc2.bias"],
        ["else"],
    )
    with pytest.raises(KeyError, match=r"missing: fc1\.weight.*unexpected: else"):
        net.load_state_dict({"fc1.bias": state["fc1.bias"], "fc2.weight": state["fc2.weight"], "else": 1})
    with pytest.raises(ValueError, match=r"'fc1\.weight' is \[2\], not \[16, 6\]"):
        net.load_state_dict({**state, "fc1.weight": np.zeros(2)})
    assert (net.fc1.weight.numpy() == 0).all()


def test_tied_parameters_are_one():
    net = Net()
    other = nn.Linear(6, 16)
    other.weight = net.fc1.weight
    both = nn.Sequential(net, other)
    assert [n for n, _ in both.named_parameters()] == [
        "0.fc1.weight", "0.fc1.bias", "0.fc2.weight", "0.fc2.bias", "1.bias",
    ]  # fmt: skip


def test_train_and_eval():
    net, x = Net(0.5), np.ones((4, 6), "float32")
    assert not net.eval().drop.training
    quiet = net(x).numpy()
    np.testing.assert_array_equal(quiet, net(x).numpy())
    assert (net.train()(x).numpy() != quiet).any()


def test_a_module_may_be_used_twice_in_one_expression(data):
    net = Net(0.5)
    x, y = (sl.asarray(a) for a in np.ones((2, 4, 6), "float32") * [[[1.0]], [[2.0]]])
    both = (net(x.astype("float32")) + net(y.astype("float32"))).numpy()
    np.testing.assert_allclose(both, net(x.astype("float32")).numpy() + net(y.astype("float32")).numpy(), rtol=1e-6)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x) + self.net(x * 2.0)

    job = sl.Job(Twice(), loss=nn.functional.cross_entropy, optimizer=sl.optim.Adam())
    job.step(*data)
    assert {"net.fc1.matmul_0", "net.fc1.matmul_1"} <= set(job.tensors())


def test_mistakes_are_told():
    class Forgot(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(2, 2)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Forgot()
    with pytest.raises(AttributeError, match="no attribute 'fc3'"):
        Net().fc3  # noqa: B018
    with pytest.raises(NotImplementedError, match=r"no forward\(\)"):
        nn.Module()(1)
    with pytest.raises(TypeError, match="argument 0 is int"):
        nn.Sequential(3)
    with pytest.raises(ValueError, match="positive"):
        nn.Linear(0, 3)
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)
    with pytest.raises(ValueError, match=r"betas\[0\]"):
        sl.optim.Adam(betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="nesterov"):
        sl.optim.SGD(0.1, nesterov=True)


def test_a_layer_that_nobody_holds_can_be_used():
    assert nn.Linear(3, 2)(np.ones((1, 3), "float32")).numpy().shape == (1, 2)


def test_safetensors_round_trip(tmp_path):
    net, path = Net(), tmp_path / "net.safetensors"
    sl.save_safetensors(net.state_dict(), path)
    loaded = sl.load_safetensors(path)
    assert list(loaded) == sorted(net.state_dict())
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), loaded[name].numpy())
        assert value.dtype is loaded[name].dtype
    odd = {"i": np.arange(5), "b": np.array([True, False]), "e": np.zeros((0, 3)), "s": np.float64(2.5)}
    sl.save_safetensors(odd, path)
    for name, value in sl.load_safetensors(path).items():
        np.testing.assert_array_equal(value.numpy(), odd[name])


def test_bad_safetensors_are_one_clear_error(tmp_path):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(FileNotFoundError, match="bad.safetensors"):
        sl.load_safetensors(path)
    for content in (b"", b"\xff" * 8, b"\x80\x04\x95" + bytes(20), (2**40).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(OSError, match="bad.safetensors"):
            sl.load_safetensors(path)
