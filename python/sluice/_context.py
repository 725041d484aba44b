# SPDX-License-Identifier: Apache-2.0
"""What the calling thread is doing while expressions are made: tracing a model, stepping, differentiating.

It holds nothing when none of them runs, so two jobs in one process never see each other.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Context(threading.local):
    scope: str = ""  # dotted path of the module that is running
    root: Any = None  # the module that paths start at; None: the outermost one
    names: dict[str, int] | None = None  # next number of each name, while a model is traced
    stepping: bool = False  # each op is evaluated as it is made
    keep: int = 0  # > 0: evaluated expressions keep their inputs (a gradient may be asked for)
    seed: int = 0  # of the random numbers of what is evaluated
    step: int = 0


context = _Context()


@contextlib.contextmanager
def using(**values: Any) -> Iterator[None]:
    """Sets fields of the context for a block."""
    saved = {name: getattr(context, name) for name in values}
    for name, value in values.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(context, name, value)


def node_name(op: str) -> str:
    """The name of a new node while a model is traced: equal in every trace of the same model."""
    if context.names is None:
        return ""
    base = f"{context.scope}.{op}" if context.scope else op
    number = context.names.get(base, 0)
    context.names[base] = number + 1
    return f"{base}_{number}"


def user_place() -> tuple[str, int]:
    """File and line of the first frame outside of this package."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


@contextlib.contextmanager
def stepping() -> Iterator[None]:
    """Evaluates each op as it is made, so that a debugger sees real values line by line.

    The values are those of a whole plan: each op goes through the same planner as a graph of one op. An op that
    turns finite numbers into NaN or infinity is an error that names the op and the line.
    """
    with using(stepping=True):
        yield
