# SPDX-License-Identifier: Apache-2.0
"""A standing cluster: jobs are submitted to it, and it runs them while this process does something else."""

from __future__ import annotations

import math
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _sluice
from ._checkpoint import load_safetensors, save_safetensors
from ._errors import Error

if TYPE_CHECKING:
    from ._job import Job
    from ._tensor import Tensor

_LOOK_S = 0.2  # between two looks at a job that runs
_ENDED = ("done", "failed", "cancelled")


def connect(address: str | None = None, secret: str | os.PathLike[str] | None = None) -> Cluster:
    """A connection to the coordinator of a standing cluster.

    address: its "HOST:PORT"; without it SLUICE_CLUSTER says where.
    secret: the file that `sluice coordinator --secret` uses; without it SLUICE_SECRET_FILE names it.
    """
    return Cluster(_sluice.connect(address or "", os.path.expanduser(secret) if secret is not None else ""))


class Cluster:
    """A standing cluster, made by `sl.connect`."""

    def __init__(self, connection: _sluice.Cluster) -> None:
        self._connection = connection

    def submit(
        self,
        job: Job,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        epochs: int = 1,
        steps: int | None = None,
        batch: int | None = None,
    ) -> SubmittedJob:
        """Queues a job with its values of now. It needs data that workers can read, such as `sl.data.idx`.

        config: a TOML file, or a dict with the same keys, as for `fit`.
        epochs: how long it trains; `steps` says it more finely.
        batch: rows of one step, over all devices.
        """
        if job.data is None or not job.data.reader:
            raise ValueError("submit: workers cannot read this job's data: give Job(data=sl.data.idx(...))")
        if job.optimizer is None:
            raise ValueError("submit needs an optimizer: Job(..., optimizer=sl.optim.Adam())")
        entry, loaded = job._training_entry(config, batch)
        loaded.plugins = list(job._plugins(entry, loaded))
        if steps is None:
            steps = epochs * math.ceil(job.data.rows / loaded.global_batch)
        if steps <= 0:
            raise ValueError(f"submit: {steps} steps; there must be at least one")
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            files = [os.path.join(folder, name) for name in ("net.job", "config.toml", "net.safetensors")]
            _sluice.save_job(entry.built, files[0])
            pathlib.Path(files[1]).write_text(loaded.text)
            save_safetensors(job.state_dict(optimizer=True), files[2])
            return SubmittedJob(self._connection, self._connection.submit(job.name, steps, *files))

    def jobs(self) -> list[SubmittedJob]:
        """All jobs that the coordinator knows of, the oldest first."""
        return [SubmittedJob(self._connection, job["id"]) for job in self._connection.jobs()]


class SubmittedJob:
    """A job of a standing cluster."""

    def __init__(self, connection: _sluice.Cluster, id: int) -> None:
        self._connection = connection
        self.id = id

    def status(self) -> str:
        """ "queued", "running", "done", "failed" or "cancelled"."""
        return str(self._info()["state"])

    def why(self) -> str:
        """What it waits for, or why it failed."""
        return str(self._info()["why"])

    def logs(self, follow: bool = False) -> Iterator[str]:
        """The lines that it has printed; with `follow` until it ends."""
        rest, offset, last = b"", 0, False
        while not last:
            piece, last = self._connection.read(self.id, False, offset)
            offset += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not piece and not last:
                if not follow:
                    break
                time.sleep(_LOOK_S)
        if rest:
            yield rest.decode(errors="replace")

    def cancel(self) -> None:
        """Ends it, as Ctrl-C would, and soon by force. One that has ended stays as it is."""
        self._connection.cancel(self.id)

    def wait(self, timeout: float | None = None) -> None:
        """Returns when it is done. Raises `sl.Error` when it failed or was cancelled, TimeoutError when it still runs.

        timeout: seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (info := self._info())["state"] not in _ENDED:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {self.id} is {info['state']} after {timeout} s")
            time.sleep(_LOOK_S)
        if info["state"] != "done":
            raise Error(f"job {self.id} {'was cancelled' if info['state'] == 'cancelled' else 'failed'}: {info['why']}")

    def state_dict(self) -> dict[str, Tensor]:
        """The values after its last step, states of the optimizer included: for `Job.load_state_dict`."""
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            path = os.path.join(folder, "net.safetensors")
            with open(path, "wb") as file:
                last = False
                while not last:
                    piece, last = self._connection.read(self.id, True, file.tell())
                    file.write(piece)
                    if not piece and not last:
                        raise Error(f"job {self.id} is {self.status()} and has no values yet: wait() for it")
                if file.tell() == 0:
                    raise Error(f"job {self.id} left no values: {self.why()}")
            return load_safetensors(path)

    def _info(self) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = self._connection.jobs()
        for info in jobs:
            if info["id"] == self.id:
                return info
        raise Error(f"the coordinator has forgotten job {self.id}")

    def __repr__(self) -> str:
        return f"SubmittedJob({self.id})"
