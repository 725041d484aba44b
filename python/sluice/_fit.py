# SPDX-License-Identifier: Apache-2.0
"""The loops of a job: steps are granted ahead, results are taken as they arrive."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from . import _sluice
from ._context import using
from ._entry import checked_loss, mode, run_model
from ._grad import gradients
from ._tensor import Tensor, as_tensor, evaluate
from .callbacks import Callback, History, ProgressBar
from .data import Data

if TYPE_CHECKING:
    from ._entry import Entry
    from ._job import Job

Results = Generator[tuple[int, dict[str, Any]], None, None]

_WINDOW = 8  # steps that are granted before their results have arrived


class Hook:
    """A function that a job calls at each step, until `remove()`."""

    def __init__(self, hooks: list[Hook], function: Callable[..., Any]) -> None:
        self._hooks, self._function = hooks, function
        hooks.append(self)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def remove(self) -> None:
        """Stops the calls."""
        if self in self._hooks:
            self._hooks.remove(self)


class Stream:
    """Some steps of a session: grants up to `window` ahead and yields (rows, outputs) in order.

    However the loop ends, the granted steps are waited for, so the session can be used again.
    """

    def __init__(
        self, job: Job, session: _sluice.Session, steps: int, start: Callable[[int], None], window: int
    ) -> None:
        self.job, self.session, self.steps, self.start, self.window = job, session, steps, start, window
        self.first = session.taken  # the session counts: no signal comes between a step and its count

    @property
    def granted(self) -> int:
        """Steps that were started."""
        return self.session.granted - self.first

    @property
    def done(self) -> int:
        """Steps whose results were taken."""
        return self.session.taken - self.first

    def run(self) -> Results:
        try:
            while self.done < self.steps:
                while self.granted < min(self.steps, self.done + self.window):
                    self.start(self.granted)
                yield self._next()
        finally:
            if self.done < self.steps:
                with contextlib.suppress(Exception):  # a failure has been told already
                    while self.done < self.granted:
                        self._next()
                    self.session.drain()

    def _next(self) -> tuple[int, dict[str, Any]]:
        result = None
        while result is None:
            try:
                result = self.session.wait(3600.0)
            except Exception as error:
                self.job._failed(self.session, error)
                raise
        _, rows, outputs = result
        return rows, outputs


def feeder(job: Job, session: Any, entry: Entry, data: Data, bound: int, seed: int, epoch: int,
           shuffle: bool) -> Callable[[int], None]:
    """What starts step `i` of an epoch: a grant, and a batch where the client feeds."""

    def start(i: int) -> None:
        if not data.reader:
            count = min(bound, data.rows - i * bound)
            rows = data.order(i * bound, count, seed, epoch) if shuffle else list(range(i * bound, i * bound + count))
            session.start_step(dict(zip(entry.inputs, data.read(rows), strict=True)))
        else:
            session.start_step({})

    return start


def steps_of(data: Data, bound: int) -> int:
    """Steps of one epoch; the last may be smaller."""
    return -(-data.rows // bound)


def batches(job: Job, session: Any, entry: Entry, data: Data, bound: int) -> Results:
    """All rows once, in order."""
    session.drain()
    session.set_step(0)
    start = feeder(job, session, entry, data, bound, 0, 0, shuffle=False)
    return Stream(job, session, steps_of(data, bound), start, _WINDOW).run()


def evaluate_entry(job: Job, entry: Entry, data: Data, bound: int) -> dict[str, float]:
    """Mean loss and accuracy over the data."""
    if data.rows == 0:
        raise ValueError("evaluate: the data has no rows")
    session = job._activate(entry)
    rows = 0
    sums = dict.fromkeys(entry.outputs, 0.0)
    with contextlib.closing(batches(job, session, entry, data, bound)) as stream:
        for count, outputs in stream:
            rows += count
            for name, value in outputs.items():
                sums[name] += float(value) * (count if name == "loss" else 1)
    result = {"loss": sums["loss"] / rows}
    if "correct" in sums:
        result["accuracy"] = sums["correct"] / rows
    return result


class Fit:
    """One call of `Job.fit`."""

    def __init__(self, job: Job, entry: Entry, data: Data, bound: int, epochs: int, callbacks: Sequence[Callback],
                 validation: Data | None, debug_steps: int, verbose: bool) -> None:
        if data.rows == 0:
            raise ValueError("fit: the data has no rows")
        self.job, self.entry, self.data, self.bound = job, entry, data, bound
        self.epochs, self.validation, self.debug_steps = epochs, validation, debug_steps
        self.steps = steps_of(data, bound)
        self.history = History()
        bars = any(isinstance(c, ProgressBar) for c in callbacks)
        self.callbacks = [self.history, *([ProgressBar()] if verbose and not bars else []), *callbacks]
        self.debugged = 0
        self.expected: dict[int, float] = {}  # the loss of steps that ran op by op

    def run(self) -> History:
        job = self.job
        job._activate(self.entry)
        # A fit starts with an epoch of its own, also after one that was left in the middle.
        job._step = -(-job._step // self.steps) * self.steps
        job.stop_training = False
        for callback in self.callbacks:
            callback.job = job
            callback.params = {
                "epochs": self.epochs, "steps": self.steps, "rows": self.data.rows, "unit": self.data.unit,
            }  # fmt: skip
        self._call("on_train_begin", {})
        job._fitting = True
        try:
            for epoch in range(self.epochs):
                self._epoch(epoch)
                if job.stop_training:
                    break
        finally:
            job._fitting = False
            self._call("on_train_end", {})
        return self.history

    def _call(self, name: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(*args)

    def _epoch(self, epoch: int) -> None:
        job = self.job
        self._call("on_epoch_begin", epoch, {})
        session = job._activate(self.entry)
        job._snapshot()
        hooked = any(job._hooks) or self.debug_steps > self.debugged
        stream = Stream(job, session, self.steps, self._starter(session), 1 if hooked else _WINDOW)
        rows, loss = 0, 0.0
        first = job._step
        try:
            with contextlib.closing(stream.run()) as results:
                for i in range(self.steps):
                    count, outputs = next(results)
                    job._version += 1
                    logs = self._result(first + i, i, count, outputs)
                    rows += count
                    loss += logs["loss"] * count
                    if job.stop_training:
                        break
        finally:
            job._advance(self.entry, stream.done)
        logs = {"loss": loss / rows}
        if self.validation is not None:
            measured = job.evaluate(data=self.validation, batch=self.bound)
            logs |= {f"val_{name}": value for name, value in measured.items()}
        self._call("on_epoch_end", epoch, logs)

    def _starter(self, session: Any) -> Callable[[int], None]:
        job, data = self.job, self.data
        seed = job._seed(self.entry.config)
        epoch = job._step // self.steps
        first = job._step
        start = feeder(job, session, self.entry, data, self.bound, seed, epoch, data.shuffle)

        def begin(i: int) -> None:
            for hook in list(job._hooks[0]):
                hook(first + i)
            if self.debugged < self.debug_steps:
                self.debugged += 1
                count = min(self.bound, data.rows - i * self.bound)
                rows = data.order(i * self.bound, count, seed, epoch)
                self.expected[first + i] = debug_step(job, data.read(rows), seed, first + i)
            start(i)
            self._call("on_train_batch_begin", i, {})

        return begin

    def _result(self, step: int, i: int, rows: int, outputs: dict[str, Any]) -> dict[str, Any]:
        from ._job import metrics_of

        metrics = metrics_of(outputs)
        if step in self.expected:
            self._compare(step, metrics["loss"])
        for hook in list(self.job._hooks[1]):
            hook(step, metrics)
        logs = {**metrics, "rows": rows}
        self._call("on_train_batch_end", i, logs)
        return logs

    def _compare(self, step: int, loss: float) -> None:
        expected = self.expected.pop(step)
        if abs(loss - expected) > 1e-4 * max(1.0, abs(loss)):
            warnings.warn(f"step {step}: the loss is {loss} by the plan and {expected} op by op", stacklevel=2)


def debug_step(job: Job, batch: list[Any], seed: int, step: int) -> float:
    """The forward and the backward of one step, op by op on real values; the update is the plan's."""
    fields = [as_tensor(array) for array in batch]
    with mode(job.model, True), using(stepping=True, keep=1, seed=seed, step=step):
        _, loss = run_model(job, fields)
        loss = checked_loss(loss)
        parameters = [p for p in job.model.parameters() if p.requires_grad]
        for gradient in gradients(loss, parameters):
            _evaluate_op_by_op(gradient)
    return float(loss)


def _evaluate_op_by_op(tensor: Tensor) -> None:
    """Evaluates what a tensor needs one op after the other, each checked."""
    todo = [tensor._expr]
    while todo:
        expr = todo[-1]
        waiting = [e for e in expr.inputs if e.kind == "op" and e.value() is None]
        if waiting:
            todo += waiting
            continue
        todo.pop()
        if expr.value() is None and expr.kind == "op":
            evaluate([Tensor(expr, tensor._plugins)], check_finite=True)
