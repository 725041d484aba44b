# SPDX-License-Identifier: Apache-2.0
"""The functions of all ops but those of `nn.functional`."""

from ._functions import plain as _plain

globals().update(_plain)
__all__ = sorted(_plain)
