# SPDX-License-Identifier: Apache-2.0
"""Writes the stubs of what the package makes from the table of ops. Run by the build.

usage: stubs.py FOLDER     (with the folder of the built module _sluice in PYTHONPATH)
"""

from __future__ import annotations

import inspect
import pathlib
import sys
import types

HEAD = '''# Written by python/stubs.py from the table of ops.
from collections.abc import Sequence
from typing import Any, TypeAlias

from {dots}_dtypes import DType
from {dots}_tensor import Tensor

TensorLike: TypeAlias = Any  # a Tensor, a NumPy array, a number, or a nested list of numbers
DTypeLike: TypeAlias = DType | str | type[Any]
Shape: TypeAlias = int | tuple[Any, ...]

'''


def load_package() -> types.ModuleType:
    """The package's functions over the module of the build, without the wheel."""
    import _sluice

    package = types.ModuleType("sluice")
    package.__path__ = [str(pathlib.Path(__file__).resolve().parent / "sluice")]
    sys.modules["sluice"] = package
    sys.modules["sluice._sluice"] = package._sluice = _sluice  # type: ignore[attr-defined]
    from sluice import _functions

    return _functions


def function(name: str, fun: types.FunctionType, indent: str = "") -> str:
    """One `def` with its docstring."""
    signature = inspect.signature(fun)
    parameters = list(signature.parameters.values())
    if indent:
        parameters[0] = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    texts, starred = [], False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
            starred = True
        text = parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not inspect.Parameter.empty:
            simple = isinstance(parameter.default, bool | int | float | str | type(None))
            text += f" = {parameter.default!r}" if simple else " = ..."
        texts.append(text)
    doc = (fun.__doc__ or "").replace("\\", "\\\\").replace('"""', "'''")
    doc = doc.replace("\n", f"\n{indent}    ").replace(f"\n{indent}    \n", "\n\n")
    tail = "" if doc.endswith('"') else ""
    return f'{indent}def {name}({", ".join(texts)}) -> Tensor:\n{indent}    """{doc}{tail}"""\n'


def write(folder: pathlib.Path) -> None:
    """Writes all stubs."""
    made = load_package()
    (folder / "nn").mkdir(parents=True, exist_ok=True)
    both = {**made.plain, **made.functional}
    methods = [op.name for op in made.tables().ops() if op.method and made.is_public(op)]
    for path, dots, names in (("_ops.pyi", ".", made.plain), ("nn/functional.pyi", "..", made.functional)):
        body = "\n".join(function(name, fun) for name, fun in sorted(names.items()))
        (folder / path).write_text(f"{HEAD.format(dots=dots)}__all__ = {sorted(names)!r}\n\n{body}")
    body = "\n".join(function(name, both[name], "    ") for name in sorted(methods))
    (folder / "_methods.pyi").write_text(f"{HEAD.format(dots='.')}class Methods:\n{body}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]))
