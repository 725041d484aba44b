# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions against finite differences, of gradients, of modules."""

import numpy as np
import pytest

import sluice as sl
from sluice import nn

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4))
W = RNG.normal(size=(4, 2))


def finite(f, x, eps=1e-6):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += eps
        down[i] -= eps
        out[i] = (float(f(sl.asarray(up))) - float(f(sl.asarray(down)))) / (2 * eps)
    return out


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * x * x).sum(),
        lambda x: sl.tanh(x @ W).mean(),
        lambda x: sl.exp(x).sum(axis=1).max(),
        lambda x: (sl.softmax(x) * X).sum(),
        lambda x: nn.functional.cross_entropy(x, np.array([0, 3, 1])),
        lambda x: (sl.relu(x.reshape((2, 6)).mT) / 3).sum(),
        lambda x: sl.where(x > 0, x * 2, sl.square(x)).mean(axis=0).sum(),
    ],
)
def test_against_finite_differences(f):
    x = sl.asarray(X)
    value, grad = sl.value_and_grad(f)(x)
    assert float(value) == pytest.approx(float(f(x)))
    np.testing.assert_allclose(grad.numpy(), finite(f, X), rtol=1e-5, atol=1e-7)


def test_gradients_of_gradients():
    def f(x):
        return (x * x * x).sum()

    x = sl.asarray(X)
    second = sl.grad(lambda a: sl.grad(f)(a).sum())(x)
    third = sl.grad(lambda b: sl.grad(lambda a: sl.grad(f)(a).sum())(b).sum())(x)
    np.testing.assert_allclose(second.numpy(), 6 * X, rtol=1e-12)
    np.testing.assert_allclose(third.numpy(), np.full_like(X, 6), rtol=1e-12)


def test_nests_and_several_arguments():
    def f(parameters, scale):
        return (parameters["w"] * scale).sum() + sum(p.sum() for p in parameters["list"])

    arguments = {"w": sl.asarray([1.0, 2.0]), "list": [sl.asarray([3.0]), sl.asarray([4.0])]}
    value, (by_parameters, by_scale) = sl.value_and_grad(f, argnums=(0, 1))(arguments, sl.asarray(2.0))
    assert float(value) == 13
    np.testing.assert_array_equal(by_parameters["w"].numpy(), [2, 2])
    np.testing.assert_array_equal(by_parameters["list"][1].numpy(), [1])
    assert float(by_scale) == 3


def test_modules_give_gradients_by_name():
    net = nn.Linear(4, 2)
    value, grads = sl.value_and_grad(lambda net, x: net(x).sum())(net, X.astype("float32"))
    assert list(grads) == ["weight", "bias"]
    np.testing.assert_allclose(grads["weight"].numpy(), np.tile(X.sum(0), (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(grads["bias"].numpy(), [3, 3])


def test_values_may_be_looked_at_on_the_way():
    def f(x):
        y = x * x
        return (y * (2 if float(y.sum()) > 1 else 0)).sum()

    np.testing.assert_allclose(sl.grad(f)(sl.asarray(X)).numpy(), 4 * X)


def test_dropout_drops_the_same_in_the_gradient():
    x = sl.asarray(np.ones((50, 40), "float32"))
    y = nn.functional.dropout(x, 0.3)
    grad = sl.grad(lambda a: nn.functional.dropout(a, 0.3).sum())(x)
    np.testing.assert_array_equal(y.numpy(), grad.numpy())
    assert 0.2 < (y.numpy() == 0).mean() < 0.4


def test_no_dependence_gives_zeros_and_wrong_calls_are_told():
    np.testing.assert_array_equal(sl.grad(lambda x: sl.asarray(1.0) * 2.0)(sl.asarray([1.0, 2.0])).numpy(), [0, 0])
    with pytest.raises(ValueError, match="scalar"):
        sl.grad(lambda x: x * 2)(sl.asarray([1.0, 2.0]))
    with pytest.raises(TypeError, match="not a tensor"):
        sl.grad(lambda x: 3.0)(sl.asarray([1.0]))
    with pytest.raises(IndexError, match="argnums"):
        sl.grad(lambda x: x.sum(), argnums=2)(sl.asarray([1.0]))


def test_own_loop_learns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3)).astype("float32")
    y = x @ np.array([[1.0], [-2.0], [0.5]], "float32")
    net = nn.Linear(3, 1)
    step = sl.value_and_grad(lambda net: sl.square(net(x) - y).mean())
    losses = []
    for _ in range(60):
        loss, grads = step(net)
        losses.append(float(loss))
        net.load_state_dict({n: v - 0.2 * grads[n] for n, v in net.state_dict().items()})
    assert losses[-1] < 1e-3 * losses[0]
