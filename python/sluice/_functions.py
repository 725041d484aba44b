# SPDX-License-Identifier: Apache-2.0
"""One Python function for each op of the table, with its signature and its docstring."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from . import _dtypes
from ._methods import Methods
from ._tables import Plugins, tables
from ._tensor import apply

Function = Callable[..., Any]

# Annotations of attributes, by kind; texts, as the stubs show them.
ANNOTATIONS = {
    "bool": "bool", "int": "int", "float": "float", "str": "str", "ints": "int | tuple[int, ...] | None",
    "shape": "Shape", "dtype": "DTypeLike",
}  # fmt: skip


def signature_of(op: Any) -> inspect.Signature:
    """The inputs, then the attributes; flags are keyword-only."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for name in op.inputs:
        many = name.endswith("...")
        annotation = "Sequence[TensorLike]" if many else "TensorLike"
        parameters.append(inspect.Parameter(name.removesuffix("..."), kind, annotation=annotation))
    options: list[inspect.Parameter] = []
    for name, attr_kind, _, required, default in op.attrs:
        if attr_kind == "dtype" and default is not None:
            default = _dtypes.BY_NAME[default]
        if attr_kind == "ints" and default == ():
            default = None
        parameter = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY if attr_kind == "bool" else kind,
            default=inspect.Parameter.empty if required else default,
            annotation=ANNOTATIONS[attr_kind],
        )
        (parameters if required and attr_kind != "bool" else options).append(parameter)
    options.sort(key=lambda p: p.kind)
    return inspect.Signature(parameters + options, return_annotation="Tensor")


def doc_of(op: Any) -> str:
    """The docstring: what it does, then its arguments."""
    lines = [op.doc]
    if op.attrs:
        lines.append("")
    lines += [f"{name}: {doc}" for name, _, doc, _, _ in op.attrs]
    return "\n".join(lines)


def function_of(op: Any, plugins: Plugins = ()) -> Function:
    """The function that appends `op`."""
    signature = signature_of(op)
    inputs = [name.removesuffix("...") for name in op.inputs]
    many = op.inputs[-1].endswith("...") if op.inputs else False
    dtypes = [name for name, kind, *_ in op.attrs if kind == "dtype"]
    public = "" if op.hidden else op.name

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{public or op.name}(): {error}") from None
        tensors = [bound.pop(name) for name in inputs]
        if many:
            tensors[-1:] = list(tensors[-1])
        for name in dtypes:
            if name in bound:
                bound[name] = _dtypes.dtype_name(bound[name])
        results = apply(op.name, tensors, bound, plugins, random=op.random)
        return results[0] if len(results) == 1 else tuple(results)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = doc_of(op)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


@functools.cache
def table_function(name: str) -> Function:
    """The function of any op of the table, hidden ones too."""
    return next(function_of(op) for op in tables().ops() if op.name == name)


def is_public(op: Any) -> bool:
    """Whether an op has a function: optimizers have a class in `optim`, hidden ones nothing."""
    return not op.hidden and not op.states


# Ops that stand in nn.functional, as in PyTorch: losses, and what only training does. All others stand in `sluice`.
FUNCTIONAL = frozenset({"cross_entropy", "dropout"})


def _make() -> tuple[dict[str, Function], dict[str, Function]]:
    plain, functional = {}, {}
    for op in tables().ops():
        if is_public(op):
            function = function_of(op)
            if op.name in FUNCTIONAL:
                function.__module__ = "sluice.nn.functional"
                functional[op.name] = function
            else:
                function.__module__ = "sluice"
                plain[op.name] = function
            if op.method:
                setattr(Methods, op.name, function)
    return plain, functional


plain, functional = _make()
