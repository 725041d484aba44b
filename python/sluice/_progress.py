# SPDX-License-Identifier: Apache-2.0
"""The progress line of one epoch."""

from __future__ import annotations

import sys
import time
from typing import Any

_BAR = 24
_REDRAW = 0.1  # seconds


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Line:
    """Shows steps, the mean loss, the rate and the time left."""

    def __init__(self, epoch: int, params: dict[str, Any], seconds: float) -> None:
        self.head = f"epoch {epoch + 1}/{params['epochs']}"
        self.steps, self.unit = params["steps"], params["unit"]
        self.out = sys.stdout
        self.is_terminal = self.out.isatty()
        self.between = _REDRAW if self.is_terminal else seconds
        self.begin = self.shown = time.monotonic()
        self.done = self.rows = 0
        self.loss = 0.0

    def step(self, logs: dict[str, Any]) -> None:
        """One more step."""
        self.done += 1
        self.rows += logs["rows"]
        self.loss += logs["loss"] * logs["rows"]
        now = time.monotonic()
        if now - self.shown >= self.between and self.done < self.steps:
            self.shown = now
            self._show(self._text(now))

    def _text(self, now: float) -> str:
        spent = max(now - self.begin, 1e-9)
        left = spent / max(self.done, 1) * (self.steps - self.done)
        loss = self.loss / max(self.rows, 1)
        bar = "█" * (_BAR * self.done // max(self.steps, 1))
        bar = f" |{bar:<{_BAR}}|" if self.is_terminal else ""
        return (
            f"{self.head}{bar} {self.done}/{self.steps}  loss {loss:.4f}  "
            f"{self.rows / spent:,.0f} {self.unit}/s  {_clock(left)} left"
        )

    def _show(self, text: str) -> None:
        if self.is_terminal:
            self.out.write(f"\r{text}\x1b[K")
        else:
            self.out.write(text + "\n")
        self.out.flush()

    def end(self, logs: dict[str, Any]) -> None:
        """The last word on the epoch."""
        spent = max(time.monotonic() - self.begin, 1e-9)
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in logs.items() if isinstance(value, float))
        self._show(
            f"{self.head} {self.done}/{self.steps}  {metrics}  {self.rows / spent:,.0f} {self.unit}/s  {_clock(spent)}"
        )
        if self.is_terminal:
            self.out.write("\n")
            self.out.flush()
