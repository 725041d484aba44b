# SPDX-License-Identifier: Apache-2.0
"""Ops from outside of the tree."""

from __future__ import annotations

import os
import types

from ._functions import function_of, is_public
from ._tables import plugin_paths, tables


def load_ops(path: str | os.PathLike[str]) -> types.SimpleNamespace:
    """The functions of a shared object that exports ops. It is native code: load what you trust.

    A config that a job with such an op runs under lists the object under [plugins].
    """
    plugins = plugin_paths([os.fspath(path)])
    known = {op.name for op in tables().ops()}
    made = {
        op.name: function_of(op, plugins) for op in tables(plugins).ops() if op.name not in known and is_public(op)
    }
    return types.SimpleNamespace(**made)
