# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions. They are expressions like any other, so gradients of gradients work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _sluice
from ._context import context, using
from ._tables import tables
from ._tensor import Tensor, as_tensor


def gradients(loss: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
    """d loss / d each of `wrt`; zeros where the loss does not depend on it."""
    found = _sluice.gradients(tables(loss._plugins), loss._expr, [t._expr for t in wrt])
    return [
        _zeros_like(t) if expr is None else Tensor(expr, loss._plugins) for t, expr in zip(wrt, found, strict=True)
    ]


def _zeros_like(tensor: Tensor) -> Tensor:
    from ._functions import plain

    return plain["full"](tensor.shape, 0.0, tensor.dtype)  # type: ignore[no-any-return]


def _map(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Applies `function` to every tensor in nested lists, tuples, dicts and modules."""
    from .nn.module import Module

    if isinstance(value, Module):
        return {name: function(parameter) for name, parameter in value.named_parameters()}
    if isinstance(value, dict):
        return {key: _map(item, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map(item, function) for item in value)
    return function(value)


def _as_tensors(value: Any) -> Any:
    from .nn.module import Module

    return value if isinstance(value, Module) else _map(value, as_tensor)


def value_and_grad(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that returns what `f` returns, and its gradient with respect to the arguments `argnums`.

    f: returns a tensor without dims, or a tuple that starts with one.
    argnums: which positional arguments. Each may be a tensor, a nest of lists and dicts of tensors, or an
        `nn.Module`, whose gradient is a dict by parameter name.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for n in numbers:
            if not -len(args) <= n < len(args):
                raise IndexError(f"argnums names argument {n}, but the call has {len(args)} positional arguments")
        call = list(args)
        for n in numbers:
            call[n] = _as_tensors(call[n])
        # What f evaluates on its way keeps its inputs, else the way back would be lost.
        with using(keep=context.keep + 1):
            value = f(*call, **kwargs)
            loss = value[0] if isinstance(value, tuple) else value
            if not isinstance(loss, Tensor):
                raise TypeError(f"{getattr(f, '__name__', 'f')} returned {type(loss).__name__}, not a tensor")
            wrt: list[Tensor] = []
            for n in numbers:
                _map(call[n], wrt.append)
            found = iter(gradients(loss, wrt))
        result = tuple(_map(call[n], lambda _: next(found)) for n in numbers)
        return value, result[0] if isinstance(argnums, int) else result

    return wrapped


def grad(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Like `value_and_grad`, but returns the gradient only."""
    both = value_and_grad(f, argnums)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return wrapped
