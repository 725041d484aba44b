# SPDX-License-Identifier: Apache-2.0
"""Where rows come from: files that a plan's source actors read, and arrays of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _sluice
from ._tables import tables

if TYPE_CHECKING:
    import numpy as np


class Field(NamedTuple):
    """One column of the data: the model's inputs first, then what the loss compares with."""

    name: str
    dtype: str
    row_shape: tuple[int, ...]


class Data:
    """Rows of fields. Made by `sl.data.idx` and `sl.data.arrays`."""

    fields: tuple[Field, ...]
    rows: int
    shuffle: bool
    seed: int | None = None  # None: the job's
    unit = "rows"  # what the progress bar counts
    reader: str = ""  # the reader that a plan opens; "": the client feeds
    attrs: dict[str, Any]

    def read(self, rows: list[int]) -> list[np.ndarray[Any, Any]]:
        """The given rows of every field."""
        raise NotImplementedError

    def order(self, begin: int, count: int, seed: int, epoch: int) -> list[int]:
        """The rows at positions [begin, begin + count) of an epoch: the same as a plan's sources read."""
        own = self.seed if self.seed is not None else seed
        return _sluice.rows_at(begin, count, self.rows, self.shuffle, own, epoch)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}: {f.dtype}{list(f.row_shape)}" for f in self.fields)
        return f"{type(self).__name__}({self.rows} rows of {fields})"


class ReaderData(Data):
    """Files that a reader of the table reads."""

    def __init__(self, reader: str, attrs: dict[str, Any], shuffle: bool, unit: str) -> None:
        self.reader, self.attrs, self.shuffle, self.unit = reader, attrs, shuffle, unit
        self._open = _sluice.open_reader(tables(), reader, attrs)
        self.fields = tuple(Field(*field) for field in self._open.fields)
        self.rows = self._open.rows

    def read(self, rows: list[int]) -> list[np.ndarray[Any, Any]]:
        """The given rows of every field."""
        return [self._open.read(i, rows) for i in range(len(self.fields))]


class ArrayData(Data):
    """Arrays of this process; each batch is fed by the client."""

    def __init__(self, arrays: tuple[Any, ...], shuffle: bool, seed: int | None) -> None:
        self.arrays = arrays_of(arrays, "arrays")
        self.rows, self.shuffle, self.seed, self.attrs = len(self.arrays[0]), shuffle, seed, {}
        self.fields = tuple(
            Field(name, a.dtype.name, a.shape[1:])
            for name, a in zip(field_names(len(arrays)), self.arrays, strict=True)
        )

    def read(self, rows: list[int]) -> list[np.ndarray[Any, Any]]:
        """The given rows of every field."""
        return [a[rows] for a in self.arrays]


def arrays_of(values: tuple[Any, ...], what: str) -> list[np.ndarray[Any, Any]]:
    """NumPy arrays with one number of rows."""
    import numpy as np

    if not values:
        raise TypeError(f"{what}() needs at least one array")
    arrays = [np.asarray(value) for value in values]
    if any(a.ndim == 0 or len(a) != len(arrays[0]) for a in arrays):
        shapes = [list(a.shape) for a in arrays]
        raise ValueError(f"{what}() needs arrays with one number of rows; these have shapes {shapes}")
    return arrays


def field_names(count: int) -> list[str]:
    """The names of unnamed fields."""
    return ["x", "y"][:count] if count <= 2 else [f"x{i}" for i in range(count)]


def idx(path: str | os.PathLike[str], split: str = "train", *, shuffle: bool = True) -> Data:
    """Images and labels in the IDX format of MNIST, plain or gzipped.

    path: a folder with files such as train-images-idx3-ubyte.gz.
    split: "train" or "test".
    shuffle: whether each epoch has its own order, by the job's seed. Evaluation never shuffles.
    """
    return ReaderData("idx", {"path": os.fspath(path), "split": split}, shuffle, "images")


def arrays(*arrays: Any, shuffle: bool = True, seed: int | None = None) -> Data:
    """Arrays with one row an example: the model's inputs first, then what the loss compares with.

    shuffle: whether each epoch has its own order.
    seed: of that order; the job's when None.
    """
    return ArrayData(arrays, shuffle, seed)


__all__ = ["Data", "Field", "arrays", "idx"]
