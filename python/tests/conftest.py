# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: a small data set, a small network, and the same network in NumPy."""

import numpy as np
import pytest

import sluice as sl
from sluice import nn


class Net(nn.Module):
    """Two layers; dropout only where asked for."""

    def __init__(self, p=0.0):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 16), nn.Linear(16, 3)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return self.fc2(self.drop(sl.relu(self.fc1(x))))


@pytest.fixture
def data():
    """70 rows: the last batch of 16 has 6."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(70, 6)).astype("float32")
    return x, (x @ rng.normal(size=(6, 3))).argmax(1)


@pytest.fixture
def make_job():
    """A job on a small network."""

    def make(p=0.0, optimizer=None, seed=0, **kwargs):
        optimizer = optimizer or sl.optim.Adam(1e-2)
        return sl.Job(Net(p), loss=nn.functional.cross_entropy, optimizer=optimizer, seed=seed, **kwargs)

    return make


def numpy_step(state, x, y):
    """Loss and gradients of Net without dropout, in float64."""
    w1, b1, w2, b2 = (np.asarray(state[k], "float64") for k in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"))
    x = x.astype("float64")
    h = x @ w1.T + b1
    r = np.maximum(h, 0)
    z = r @ w2.T + b2
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    p[rows, y] -= 1
    dz = p / len(y)
    dh = (dz @ w2) * (h > 0)
    grads = {"fc1.weight": dh.T @ x, "fc1.bias": dh.sum(0), "fc2.weight": dz.T @ r, "fc2.bias": dz.sum(0)}
    return loss, grads
