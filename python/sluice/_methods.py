# SPDX-License-Identifier: Apache-2.0
"""The methods that ops give to `Tensor`. They come from the table of ops when the package is loaded."""


class Methods:
    """What `Tensor` inherits: one method for each op that says so."""

    __slots__ = ()
