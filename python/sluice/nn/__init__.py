# SPDX-License-Identifier: Apache-2.0
"""Modules: parts of models."""

from . import functional as functional
from .layers import CrossEntropyLoss, Dropout, Flatten, Linear, ReLU, Sequential
from .module import Module, Parameter

__all__ = [
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Linear",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "functional",
]
