# SPDX-License-Identifier: Apache-2.0
"""The constant tables (ops, moves, readers, ...) with and without plug-ins, and the evaluator of each."""

from __future__ import annotations

import functools
import os

from . import _sluice

Plugins = tuple[str, ...]
_PLANS_KEPT = 128


@functools.cache
def tables(plugins: Plugins = ()) -> _sluice.Tables:
    """The tables with the ops of `plugins`: sorted absolute paths of shared objects."""
    return _sluice.Tables(list(plugins))


@functools.cache
def evaluator(plugins: Plugins = ()) -> _sluice.Evaluator:
    """What evaluates lazy tensors; it keeps the plans it made."""
    return _sluice.Evaluator(tables(plugins), _PLANS_KEPT)


def joined(a: Plugins, b: Plugins) -> Plugins:
    """The plug-ins of either."""
    if a == b or not b:
        return a
    return b if not a else tuple(sorted({*a, *b}))


def plugin_paths(paths: list[str], folder: str = "") -> Plugins:
    """Paths as `tables` wants them; relative ones start at `folder`."""
    return tuple(sorted({os.path.realpath(os.path.join(folder, path)) for path in paths}))
