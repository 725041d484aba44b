# SPDX-License-Identifier: Apache-2.0
"""Tensors from values. (`full`, `uniform` and `normal` are ops.)"""

from __future__ import annotations

from typing import Any

from ._dtypes import DType, dtype_name, float32
from ._functions import plain
from ._tensor import Tensor, as_tensor


def asarray(obj: Any, dtype: DType | str | None = None) -> Tensor:
    """A tensor of numbers, nested lists, a NumPy array, or anything with `__array__`.

    Python's real numbers become float32 and its integers int64; arrays keep their dtype.
    """
    return as_tensor(obj, None if dtype is None else dtype_name(dtype))


def zeros(shape: int | tuple[Any, ...], dtype: DType | str = float32) -> Tensor:
    """A tensor of zeros."""
    return plain["full"](shape, 0.0, dtype)  # type: ignore[no-any-return]


def ones(shape: int | tuple[Any, ...], dtype: DType | str = float32) -> Tensor:
    """A tensor of ones."""
    return plain["full"](shape, 1.0, dtype)  # type: ignore[no-any-return]
