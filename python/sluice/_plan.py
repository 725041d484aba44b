# SPDX-License-Identifier: Apache-2.0
"""What would run, to look at."""

from __future__ import annotations

from . import _sluice


class Plan:
    """A physical plan: every kernel, every transfer, every buffer."""

    def __init__(self, plan: _sluice.Plan) -> None:
        self._plan = plan

    @property
    def text(self) -> str:
        """The whole plan as text."""
        return self._plan.text

    @property
    def json(self) -> str:
        """The summary as JSON."""
        return self._plan.json

    @property
    def hash(self) -> str:
        """Equal for equal plans."""
        return self._plan.hash

    def show(self) -> None:
        """Prints a table: devices, chains, moves with their bytes, registers and memory."""
        print(self._plan.summary)

    def __repr__(self) -> str:
        return f"Plan({self._plan.ranks} devices, {self.hash})"
