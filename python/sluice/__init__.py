# SPDX-License-Identifier: Apache-2.0
"""Sluice: one Python model and one TOML file become one physical plan, run by actors."""

from . import _ops, callbacks, data, nn, optim
from ._checkpoint import load_safetensors, save_safetensors
from ._cluster import Cluster, SubmittedJob, connect
from ._context import stepping
from ._creation import asarray, ones, zeros
from ._errors import ConfigError, Error
from ._dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from ._dtypes import bool_ as bool  # noqa: A001
from ._grad import grad, value_and_grad
from ._job import Job
from ._ops import *
from ._plan import Plan
from ._plugins import load_ops
from ._sluice import Dim
from ._tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "ConfigError",
    "DType",
    "Dim",
    "Error",
    "Job",
    "Plan",
    "SubmittedJob",
    "Tensor",
    "asarray",
    "bfloat16",
    "bool",
    "callbacks",
    "connect",
    "data",
    "float16",
    "float32",
    "float64",
    "grad",
    "int8",
    "int16",
    "int32",
    "int64",
    "load_ops",
    "load_safetensors",
    "nn",
    "ones",
    "optim",
    "save_safetensors",
    "stepping",
    "uint8",
    "value_and_grad",
    "zeros",
    *_ops.__all__,
]
