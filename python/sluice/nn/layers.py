# SPDX-License-Identifier: Apache-2.0
"""Layers, with PyTorch's names, weight layouts and initial values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .._dtypes import DType, dtype_name, float32
from .._functions import functional, plain
from .._tensor import Tensor
from .module import Module, Parameter


def _spread(shape: tuple[int, ...], bound: float, dtype: str) -> Parameter:
    """A parameter drawn evenly from [-bound, bound)."""
    return Parameter._drawn(shape, lambda name: plain["uniform"](shape, -bound, bound, dtype, key=name), dtype)


class Linear(Module):
    """`x @ weight.mT + bias`, with `weight` [out_features, in_features] as PyTorch stores it."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: DType | str = float32
    ) -> None:
        super().__init__()
        if in_features <= 0 or out_features <= 0:
            raise ValueError(f"Linear({in_features}, {out_features}): both sizes must be positive")
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features)  # of kaiming_uniform with a = sqrt(5), too
        self.weight = _spread((out_features, in_features), bound, dtype_name(dtype))
        self.bias = _spread((out_features,), bound, dtype_name(dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer to the last dim."""
        y = x @ self.weight.mT
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class ReLU(Module):
    """`max(x, 0)`."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies it element-wise."""
        return plain["relu"](x)  # type: ignore[no-any-return]


class Dropout(Module):
    """Zeroes elements with probability `p` and scales the others by 1 / (1 - p), while training."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is {p}, not a probability")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drops, or passes `x` on when not training."""
        return functional["dropout"](x, self.p) if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class Flatten(Module):
    """Joins the dims from `start_dim` to `end_dim` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Reshapes `x`."""
        first, last = self.start_dim % x.ndim, self.end_dim % x.ndim
        joined: Any = 1
        for dim in x.shape[first : last + 1]:
            joined = dim * joined
        return plain["reshape"](x, (*x.shape[:first], joined, *x.shape[last + 1 :]))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The dims."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class CrossEntropyLoss(Module):
    """The mean over the batch of -log softmax(input)[target]."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """input: [batch, classes]; target: [batch] of class numbers."""
        return functional["cross_entropy"](input, target)  # type: ignore[no-any-return]


class Sequential(Module):
    """Modules one after the other, named "0", "1", ..."""

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        for i, module in enumerate(modules):
            if not isinstance(module, Module):
                raise TypeError(f"Sequential: argument {i} is {type(module).__name__}, not a Module")
            setattr(self, str(i), module)

    def forward(self, x: Any) -> Any:
        """Applies all in order."""
        for module in self._modules.values():
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int) -> Module:
        modules: list[Module] = list(self._modules.values())
        return modules[index]
