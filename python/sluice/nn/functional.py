# SPDX-License-Identifier: Apache-2.0
"""Losses and what only training does, as functions. All other functions stand in `sluice`."""

from .._functions import functional as _functional

globals().update(_functional)
__all__ = sorted(_functional)
