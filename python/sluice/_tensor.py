# SPDX-License-Identifier: Apache-2.0
"""Tensor: a lazy array. It is evaluated when its numbers are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _dtypes, _sluice
from ._context import context, node_name, user_place
from ._errors import Error
from ._methods import Methods
from ._tables import Plugins, evaluator, joined, tables

if TYPE_CHECKING:
    import numpy as np

class Tensor(Methods):
    """A lazy array with the array API standard's names. Made by `sl.asarray`, by creation functions and by ops.

    The shape and the dtype are known at once; the numbers are computed by a plan when they are first asked for:
    by `numpy()`, by printing, by `float()`, or by a job's step. Inside of a job's model there are only shapes.
    """

    __slots__ = ("__weakref__", "_expr", "_plugins")
    __array_ufunc__ = None  # NumPy leaves mixed expressions to us

    def __init__(self, expr: _sluice.Expr, plugins: Plugins = ()) -> None:
        if not isinstance(expr, _sluice.Expr):
            raise TypeError("a Tensor is made by sl.asarray(...), sl.zeros(...) and other functions")
        self._expr = expr
        self._plugins = plugins

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes; a batch dim, known only when a batch arrives, is a `Dim` that may be scaled and passed on."""
        return self._expr.shape

    @property
    def dtype(self) -> _dtypes.DType:
        """The element type."""
        return _dtypes.BY_NAME[self._expr.dtype]

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._expr.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        result = 1
        for dim in self._expr.shape:
            result *= dim.__index__()
        return result

    @property
    def T(self) -> Tensor:  # noqa: N802
        """A matrix with its dims swapped."""
        if self.ndim != 2:
            raise ValueError(f"T needs two dims, not {self.ndim}; for stacks of matrices use mT")
        return self.mT

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The last two dims swapped."""
        return apply("matrix_transpose", (self,), {})[0]

    def numpy(self) -> np.ndarray[Any, Any]:
        """The numbers, as a read-only NumPy array."""
        value = self._expr.value()
        if value is None:
            evaluate([self])
            value = self._expr.value()
        return value  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.numpy()
        if dtype is not None and value.dtype != dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to convert {value.dtype} to {dtype}")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __float__(self) -> float:
        return float(self._one("float"))

    def __int__(self) -> int:
        return int(self._one("int"))

    def __index__(self) -> int:
        return self._one("index").__index__()  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return bool(self._one("bool"))

    def _one(self, what: str) -> Any:
        if self.shape != ():
            raise TypeError(f"{what}() needs a tensor of one number without dims, not {self._expr.type_text}")
        return self.numpy()[()]

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a tensor without dims has no len()")
        return self.shape[0].__index__()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        if not self._expr.is_concrete:
            return f"Tensor({self._expr.type_text})"
        import numpy as np

        body = np.array2string(self.numpy(), separator=", ", prefix="Tensor(", threshold=1000)
        return f"Tensor({body}, dtype={self.dtype.name})"

    # Python's operators are the ops that the array API standard says.

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _binary("divide", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _binary("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _binary("matmul", other, self)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _binary("equal", self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _binary("greater_equal", self, other)

    def __neg__(self) -> Tensor:
        return apply("negative", (self,), {})[0]

    def __abs__(self) -> Tensor:
        return apply("abs", (self,), {})[0]

    def __invert__(self) -> Tensor:
        return apply("logical_not", (self,), {})[0]


def as_tensor(value: Any, dtype: str | None = None) -> Tensor:
    """A tensor of what a user may pass: a tensor, an array, a number or a nested list."""
    import numpy as np

    if isinstance(value, Tensor):
        return value if dtype in (None, value._expr.dtype) else apply("astype", (value,), {"dtype": dtype})[0]
    if dtype == "bfloat16":
        raise TypeError("NumPy has no bfloat16: make a float32 tensor and convert it with astype")
    array = np.asarray(value)
    if dtype is not None:
        array = array.astype(dtype)
    elif array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(np.float32)  # Python's numbers get the default dtype
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is no array of numbers")
    return Tensor(_sluice.Expr.constant(np.ascontiguousarray(array).reshape(array.shape)))


def _number(value: float, like: str | None) -> _sluice.Expr:
    """A number written in the user's code: it takes the dtype of the tensor beside it where it can."""
    if isinstance(value, bool):
        dtype = like or "bool"
    elif isinstance(value, int):
        dtype = "int64" if like in (None, "bool") else like
    else:
        dtype = like if like is not None and "float" in like else "float32"
    return _sluice.Expr.scalar(float(value), dtype)


def _exprs(values: Sequence[Any]) -> tuple[list[_sluice.Expr], Plugins]:
    """The operands of an op as expressions."""
    tensors = [v if isinstance(v, bool | int | float) else as_tensor(v) for v in values]
    dtypes = [t._expr.dtype for t in tensors if isinstance(t, Tensor)]
    like = next((d for d in dtypes if d != "bool"), dtypes[0] if dtypes else None)
    plugins: Plugins = ()
    result = []
    for t in tensors:
        if isinstance(t, Tensor):
            plugins = joined(plugins, t._plugins)
            result.append(t._expr)
        else:
            result.append(_number(t, like))
    return result, plugins


def apply(
    op: str, inputs: Sequence[Any], attrs: dict[str, Any], plugins: Plugins = (), *, random: bool = False
) -> list[Tensor]:
    """Appends an op at the user's line; a wrong shape is an error there."""
    file, line = user_place()
    exprs, used = _exprs(inputs)
    plugins = joined(plugins, used)
    name = node_name(op)
    if random and not attrs.get("key"):
        # Said here, so that the numbers stay the same whatever graph the node comes to stand in.
        attrs = {**attrs, "key": name or op}
    made = _sluice.apply(tables(plugins), op, exprs, attrs, file, line, name)
    results = [Tensor(expr, plugins) for expr in made]
    if context.stepping:
        evaluate(results, check_finite=True)
    return results


def evaluate(tensors: Sequence[Tensor], *, check_finite: bool = False) -> None:
    """Gives each tensor its numbers, by one plan."""
    exprs = [t._expr for t in tensors]
    cells = _sluice.cells_of(exprs)
    undrawn = [cell for _, cell in cells if cell.is_undrawn]
    if undrawn:
        undrawn[0].draw_all(undrawn)
    plugins: Plugins = ()
    for t in tensors:
        plugins = joined(plugins, t._plugins)
    try:
        for expr, cell in cells:
            expr.set_value(cell.read())
        evaluator(plugins).evaluate(exprs, context.seed, context.step, context.keep > 0)
    finally:
        for expr, _ in cells:
            expr.clear_value()
    if check_finite:
        for t in tensors:
            _check_finite(t)


def _check_finite(tensor: Tensor) -> None:
    import numpy as np

    value = tensor._expr.value()
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return
    inputs = [e.value() for e in tensor._expr.inputs]
    if not all(v is None or v.dtype.kind != "f" or np.isfinite(v).all() for v in inputs):
        return
    bad = "NaN" if np.isnan(value).any() else "infinity"
    file, line = tensor._expr.place
    name = tensor._expr.name or tensor._expr.op
    error = Error(f"{file}:{line}: {name} made {bad} from finite numbers in step {context.step} (rank 0)")
    error.place = (file, line)
    raise error


def _binary(op: str, left: Any, right: Any) -> Tensor:
    for operand in (left, right):
        if not isinstance(operand, Tensor | bool | int | float | list | tuple) and not hasattr(operand, "__array__"):
            return NotImplemented  # type: ignore[no-any-return]
    return apply(op, (left, right), {})[0]
