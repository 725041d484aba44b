# SPDX-License-Identifier: Apache-2.0
"""Tensors in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _sluice
from ._tensor import Tensor, as_tensor


def save_safetensors(tensors: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes named tensors; the file appears whole or not at all."""
    _sluice.save_safetensors({name: as_tensor(value).numpy() for name, value in tensors.items()}, os.fspath(path))


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads named tensors."""
    return {name: as_tensor(value) for name, value in _sluice.load_safetensors(os.fspath(path)).items()}
