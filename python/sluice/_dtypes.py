# SPDX-License-Identifier: Apache-2.0
"""Element types, named as in the array API standard."""

from __future__ import annotations

from typing import Any


class DType:
    """An element type: `sl.float32`. Wherever one is expected its name or NumPy's dtype does too."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"sluice.{self.name}"

    def __reduce__(self) -> str:
        return self.name


float32 = DType("float32")
float64 = DType("float64")
bfloat16 = DType("bfloat16")
float16 = DType("float16")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
bool_ = DType("bool")

BY_NAME = {t.name: t for t in (float32, float64, bfloat16, float16, int8, int16, int32, int64, uint8, bool_)}


def dtype_name(dtype: Any) -> str:
    """The name of what a user may write for a dtype; unknown names are refused where they are used."""
    if isinstance(dtype, DType):
        return dtype.name
    if isinstance(dtype, str):
        return dtype
    if dtype is float:
        return "float32"
    if dtype is int:
        return "int64"
    if dtype is bool:
        return "bool"
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if isinstance(name, str):
        return name.rstrip("_")
    raise TypeError(f"{dtype!r} is no dtype; write sl.float32, 'float32' or a NumPy dtype")
