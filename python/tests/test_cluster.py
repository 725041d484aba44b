# SPDX-License-Identifier: Apache-2.0
"""A script under `sluice run -n`, and jobs submitted to a standing cluster: the same numbers as here."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
from sluice import nn

COMMAND = pathlib.Path(sys.executable).parent / "sluice"
DATA = "/usr/share/datasets/fashion-mnist"
MESH = {"mesh": {"axes": {"dp": 2}}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten, self.fc1, self.fc2 = nn.Flatten(), nn.Linear(784, 16), nn.Linear(16, 10)

    def forward(self, x):
        return self.fc2(sl.relu(self.fc1(self.flatten(x))))


def make_job(**kwargs):
    kwargs.setdefault("data", sl.data.idx(DATA, split="test"))
    return sl.Job(Net(), loss=nn.functional.cross_entropy, optimizer=sl.optim.Adam(1e-3), **kwargs)


@contextlib.contextmanager
def started(*words, wait=None):
    """A process of the command, ended politely; `wait`: what it prints first."""
    process = subprocess.Popen([COMMAND, *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline() if wait else ""
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def cluster(tmp_path):
    """(address, secret's file) of a coordinator with two workers of two devices each."""
    secret = tmp_path / "secret"
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(
            started("coordinator", "--port", "0", "--secret", secret, "--new-secret", wait="coordinator at ")
        )
        address = line.split()[-1]
        for _ in range(2):
            stack.enter_context(started("worker", "--join", address, "--secret", secret, "--devices", "2"))
        yield address, secret


def test_a_submitted_job_trains_as_here(cluster):
    job = make_job()
    handle = sl.connect(*cluster).submit(job, MESH, steps=30, batch=128)
    assert handle.status() in ("queued", "running")
    lines = list(handle.logs(follow=True))
    assert lines[-2].startswith("step 30/30  loss ") or lines[-1].startswith("step 30/30  loss "), lines
    handle.wait(60)
    assert handle.status() == "done" and handle.why() == ""
    assert list(handle.logs()) == lines
    values = handle.state_dict()
    assert "fc1.weight.exp_avg" in values

    here = make_job()
    here.fit(epochs=1, batch=128, config=MESH, verbose=False, callbacks=[stop_after(30)])
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(values[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    job.load_state_dict(values)
    assert job.evaluate()["loss"] < 2.0


def stop_after(steps):
    class Stop(sl.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 >= steps:
                self.model.stop_training = True

    return Stop()


def test_jobs_queue_and_are_cancelled(cluster):
    connection = sl.connect(*cluster)
    config = {"mesh": {"axes": {"dp": 4}}}
    first, second = (connection.submit(make_job(), config, epochs=100_000) for _ in range(2))
    assert [job.id for job in connection.jobs()] == [first.id, second.id]
    next(first.logs(follow=True))  # it runs
    assert second.status() == "queued"
    with pytest.raises(TimeoutError, match="is running"):
        first.wait(0.01)
    with pytest.raises(sl.Error, match="has no values yet"):
        second.state_dict()
    second.cancel()
    first.cancel()
    for job in (first, second):
        with pytest.raises(sl.Error, match="was cancelled"):
            job.wait(60)
        assert job.status() == "cancelled"


def test_a_failed_job_says_why(cluster):
    class Wrong(Net):
        def __init__(self):
            super().__init__()
            self.fc2 = nn.Linear(16, 8)  # labels go up to 9

    job = sl.Job(Wrong(), loss=nn.functional.cross_entropy, optimizer=sl.optim.SGD(0.1),
                 data=sl.data.idx(DATA, split="test"))  # fmt: skip
    handle = sl.connect(*cluster).submit(job, MESH, steps=3)
    with pytest.raises(sl.Error, match="failed: ended with code 1: .*test_cluster.py:"):
        handle.wait(60)
    with pytest.raises(sl.Error, match="left no values"):
        handle.state_dict()


def test_what_cannot_be_submitted(cluster, data, tmp_path, monkeypatch):
    connection = sl.connect(*cluster)
    with pytest.raises(ValueError, match="workers cannot read this job's data"):
        connection.submit(make_job(data=sl.data.arrays(*data)))
    with pytest.raises(ValueError, match="0 steps"):
        connection.submit(make_job(), steps=0)
    with pytest.raises(sl.ConfigError):
        connection.submit(make_job(), {"mesh": {"axis": 3}})
    with pytest.raises(ValueError, match="which coordinator"):
        sl.connect()
    with pytest.raises(ValueError, match="with which secret"):
        sl.connect(cluster[0])
    other = tmp_path / "other"
    other.write_text("0" * 64)
    other.chmod(0o600)
    with pytest.raises(ValueError, match="another secret"):
        sl.connect(cluster[0], other)
    monkeypatch.setenv("SLUICE_CLUSTER", cluster[0])
    monkeypatch.setenv("SLUICE_SECRET_FILE", str(cluster[1]))
    assert sl.connect().jobs() == []


SCRIPT = f"""
import sluice as sl
from sluice import nn
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
job = sl.Job(net, loss=nn.functional.cross_entropy, optimizer=sl.optim.Adam(1e-3),
             data=sl.data.idx({DATA!r}, split="test"))
history = job.fit(epochs=1, batch=256, config={MESH!r}, verbose=False)
print(f"{{history.history['loss'][0]:.6f} {{job.evaluate()['loss']:.6f}}")
"""


def test_a_script_runs_unchanged_on_workers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    here, there = (
        subprocess.run([COMMAND, "run", *more, script], capture_output=True, text=True, timeout=300)
        for more in ([], ["-n", "2"])
    )
    assert here.returncode == there.returncode == 0, here.stderr + there.stderr
    assert here.stdout == there.stdout and len(here.stdout.split()) == 2


def test_a_scripts_error_is_its_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("nn.Linear(16, 10)", "nn.Linear(16, 8)"))
    done = subprocess.run([COMMAND, "run", "-n", "2", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "cross_entropy" in done.stderr.splitlines()[-1] + done.stderr.splitlines()[-2]


def test_ctrl_c_reaches_the_script_once(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\nprint('there', flush=True)\n"
        "try:\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('heard', flush=True)\n"
    )
    process = subprocess.Popen([COMMAND, "run", "-n", "2", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)  # fmt: skip
    assert process.stdout.readline() == "there\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "heard\n", "sluice: stopped by signal 2 (Interrupt)\n")
