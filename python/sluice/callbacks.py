# SPDX-License-Identifier: Apache-2.0
"""Callbacks of `Job.fit`, with Keras's names.

Steps are granted some way ahead, so a callback hears of a step when its metrics arrive, while later steps run.
What must happen exactly between two steps is a hook: `Job.before_step`, `Job.after_step`.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._job import Job

Logs = dict[str, Any]


class Callback:
    """Called by `Job.fit`. Subclasses define what they need; `self.job` is the job."""

    job: Job
    params: dict[str, Any]  # epochs, steps, rows, unit

    def on_train_begin(self, logs: Logs) -> None:
        """Before the first epoch."""

    def on_train_end(self, logs: Logs) -> None:
        """After the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """Before an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """After an epoch; logs hold its metrics, those of validation as val_..."""

    def on_train_batch_begin(self, batch: int, logs: Logs) -> None:
        """When a step has been granted."""

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """When the metrics of a step have arrived."""


class History(Callback):
    """What `fit` returns: the metrics of each epoch."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Keeps the metrics."""
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)


class LambdaCallback(Callback):
    """Functions as a callback."""

    def __init__(
        self,
        on_epoch_begin: Callable[[int, Logs], Any] | None = None,
        on_epoch_end: Callable[[int, Logs], Any] | None = None,
        on_train_begin: Callable[[Logs], Any] | None = None,
        on_train_end: Callable[[Logs], Any] | None = None,
        on_train_batch_begin: Callable[[int, Logs], Any] | None = None,
        on_train_batch_end: Callable[[int, Logs], Any] | None = None,
    ) -> None:
        given = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
        }
        for name, function in given.items():
            if function is not None:
                setattr(self, name, function)


class TerminateOnNaN(Callback):
    """Stops training when the loss is not finite."""

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """Looks at the loss."""
        if not math.isfinite(logs["loss"]):
            print(f"step {batch}: the loss is {logs['loss']}; training stops")
            self.job.stop_training = True


class _Best:
    """Which of two values of a metric is better."""

    def __init__(self, what: str, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"{what}: mode is {mode!r}, not 'auto', 'min' or 'max'")
        self.what, self.monitor, self.min_delta = what, monitor, abs(min_delta)
        self.upwards = mode == "max" or (mode == "auto" and "acc" in monitor)
        self.value = -math.inf if self.upwards else math.inf

    def better(self, logs: Logs) -> bool:
        if self.monitor not in logs:
            raise KeyError(f"{self.what}: there is no metric '{self.monitor}'; there are {', '.join(sorted(logs))}")
        value = logs[self.monitor]
        gain = value - self.value if self.upwards else self.value - value
        if not gain > self.min_delta:
            return False
        self.value = value
        return True


class EarlyStopping(Callback):
    """Stops training when a metric has not improved for `patience` epochs."""

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 0,
        mode: str = "auto",
        restore_best_weights: bool = False,
    ) -> None:
        self._args = ("EarlyStopping", monitor, mode, min_delta)
        self.patience, self.restore_best_weights = patience, restore_best_weights
        self.stopped_epoch = 0

    def on_train_begin(self, logs: Logs) -> None:
        """Starts over."""
        self._best, self._wait = _Best(*self._args), 0
        self._weights: Any = None

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Compares."""
        if self._best.better(logs):
            self._wait = 0
            if self.restore_best_weights:
                self._weights = self.job.state_dict()
            return
        self._wait += 1
        if self._wait >= self.patience:
            self.stopped_epoch = epoch
            self.job.stop_training = True
            if self._weights is not None:
                self.job.load_state_dict(self._weights)


class ModelCheckpoint(Callback):
    """Saves the parameters as safetensors after each epoch.

    filepath: may hold {epoch} and metrics, as in "net-{epoch:02d}-{val_loss:.3f}.safetensors".
    save_best_only: only when `monitor` has improved.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        save_best_only: bool = False,
        mode: str = "auto",
    ) -> None:
        self.filepath = os.fspath(filepath)
        self.save_best_only = save_best_only
        self._best = _Best("ModelCheckpoint", monitor, mode)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Saves."""
        from ._checkpoint import save_safetensors

        if not self.save_best_only or self._best.better(logs):
            save_safetensors(self.job.state_dict(), self.filepath.format(epoch=epoch + 1, **logs))


class CSVLogger(Callback):
    """Writes the metrics of each epoch to a CSV file."""

    def __init__(self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False) -> None:
        self.filename, self.separator, self.append = os.fspath(filename), separator, append

    def on_train_begin(self, logs: Logs) -> None:
        """Opens the file."""
        self._has_header = self.append and os.path.exists(self.filename) and os.path.getsize(self.filename) > 0
        self._file = open(self.filename, "a" if self.append else "w", newline="")  # noqa: SIM115
        self._names: list[str] = []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Writes one line."""
        writer = csv.writer(self._file, delimiter=self.separator)
        if not self._names:
            self._names = list(logs)
            if not self._has_header:
                writer.writerow(["epoch", *self._names])
        writer.writerow([epoch, *(logs.get(name, "") for name in self._names)])
        self._file.flush()

    def on_train_end(self, logs: Logs) -> None:
        """Closes the file."""
        self._file.close()


class ProgressBar(Callback):
    """One line with the loss, the rate and the time left; plain lines now and then where there is no terminal.

    seconds: between two plain lines.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self.seconds = seconds

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """Starts a line."""
        from ._progress import Line

        self._line = Line(epoch, self.params, self.seconds)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """Moves on."""
        self._line.step(logs)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Ends the line."""
        self._line.end(logs)


__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "ModelCheckpoint",
    "ProgressBar",
    "TerminateOnNaN",
]
