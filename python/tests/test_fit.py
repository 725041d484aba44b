# SPDX-License-Identifier: Apache-2.0
"""What happens around the steps: callbacks, hooks, stepping, Ctrl-C, exceptions, failures."""

import os
import signal

import numpy as np
import pytest
from conftest import Net

import sluice as sl
from sluice import callbacks, nn, optim


def test_callbacks_are_called_as_in_keras(data, make_job, tmp_path):
    x, y = data
    calls = []

    class Log(callbacks.Callback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                return lambda *args: calls.append((name, *args[:-1]))
            return super().__getattribute__(name)

    make_job().fit(x, y, epochs=2, batch=35, callbacks=[Log()], verbose=False)
    assert [c for c in calls if "batch" not in c[0]] == [
        ("on_train_begin",), ("on_epoch_begin", 0), ("on_epoch_end", 0), ("on_epoch_begin", 1), ("on_epoch_end", 1),
        ("on_train_end",),
    ]  # fmt: skip
    assert [c[1] for c in calls if c[0] == "on_train_batch_end"] == [0, 1, 0, 1]
    assert [c[1] for c in calls if c[0] == "on_train_batch_begin"] == [0, 1, 0, 1]


def test_callbacks_of_the_package(data, make_job, tmp_path):
    x, y = data
    path = tmp_path / "net-{epoch:02d}.safetensors"
    job = make_job()
    history = job.fit(
        x, y, epochs=3, batch=16, verbose=False, validation_data=(x, y),
        callbacks=[
            callbacks.CSVLogger(tmp_path / "log.csv"),
            callbacks.ModelCheckpoint(path),
            callbacks.EarlyStopping("val_accuracy", min_delta=2.0, restore_best_weights=True),
            callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(extra=epoch)),
        ],
    )  # fmt: skip
    assert history.epoch == [0, 1], "no accuracy improves by 2, so the second epoch is the last"
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0] == "epoch,loss,val_loss,val_accuracy" and len(lines) == 3
    best = sl.load_safetensors(tmp_path / "net-01.safetensors")
    for name, value in job.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), best[name].numpy())
    with pytest.raises(KeyError, match="no metric 'val_los'"):
        job.fit(x, y, verbose=False, callbacks=[callbacks.EarlyStopping("val_los")])
    with pytest.raises(ValueError, match="mode"):
        callbacks.ModelCheckpoint("x", mode="least")


def test_progress_is_plain_lines_without_a_terminal(data, make_job, capsys):
    x, y = data
    make_job().fit(x, y, epochs=2, batch=16)
    out = capsys.readouterr().out
    assert "\r" not in out and "\x1b" not in out
    lines = out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("epoch 1/2 5/5  loss ") and "rows/s" in lines[0]
    make_job().fit(x, y, batch=7, callbacks=[callbacks.ProgressBar(seconds=0.0)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and "left" in lines[0] and "3/10" in lines[2]


def test_hooks_run_exactly_between_steps(data, make_job):
    x, y = data
    job = make_job()
    seen = []
    before = job.before_step(lambda step: seen.append(("before", step, job.state_dict()["fc1.bias"].numpy()[0])))
    after = job.after_step(lambda step, metrics: seen.append(("after", step, metrics["loss"])))
    job.fit(x, y, batch=16, verbose=False)
    assert [s[:2] for s in seen] == [(w, i) for i in range(5) for w in ("before", "after")]
    assert len({s[2] for s in seen if s[0] == "before"}) == 5, "each step starts from other values"
    before.remove()
    after.remove()
    job.fit(x, y, batch=16, verbose=False)
    assert len(seen) == 10
    step = job._step
    handle = job.after_step(lambda step, metrics: seen.append(step))
    job.step(x[:16], y[:16])
    handle.remove()
    assert seen[-1] == step


def test_hooks_may_change_values(data, make_job):
    x, y = data
    job = make_job(optimizer=optim.SGD(0.0))
    losses = []

    def halve(step):
        job.load_state_dict({n: v * 0.5 for n, v in job.state_dict().items()})

    job.before_step(halve)
    job.after_step(lambda step, metrics: losses.append(metrics["loss"]))
    for _ in range(8):
        job.step(x[:16], y[:16])
    assert losses[-1] == pytest.approx(np.log(3), abs=1e-2)


def test_fetch_in_fit(data, make_job):
    x, y = data
    shapes = []
    log = callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: shapes.append(logs["relu_0"].shape))
    make_job().fit(x, y, batch=16, fetch=("relu_0",), callbacks=[log], verbose=False)
    assert shapes == [(16, 16)] * 4 + [(6, 16)]


def test_an_exception_in_a_callback_leaves_the_job_usable(data, make_job):
    x, y = data
    job, other = make_job(p=0.1), make_job(p=0.1)

    def fail(i, logs):
        if i == 3:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        job.fit(x, y, batch=5, callbacks=[callbacks.LambdaCallback(on_train_batch_end=fail)], verbose=False)
    # The steps that were granted have been done; the next fit is as after them.
    done = job._step
    assert 4 <= done <= 14
    rows = sl.data.arrays(x, y).order(0, 70, 0, 0)
    for i in range(done):
        other.step(x[rows[5 * i : 5 * i + 5]], y[rows[5 * i : 5 * i + 5]])
    for name, value in other.state_dict().items():
        np.testing.assert_allclose(job.state_dict()[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-6)
    assert job.fit(x, y, batch=5, verbose=False).history["loss"][0] < 1.3
    assert job.evaluate(x, y)["loss"] < 1.3


def test_ctrl_c_stops_fit_and_nothing_else(data, make_job):
    # A test run in the background starts with SIGINT ignored, and then Python sets no handler; a terminal's has one.
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        check_ctrl_c(data, make_job)
    finally:
        signal.signal(signal.SIGINT, old)


def check_ctrl_c(data, make_job):
    x, y = data
    job = make_job()

    def press(i, logs):
        if i == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        job.fit(x, y, epochs=500, batch=5, verbose=False, callbacks=[
            callbacks.LambdaCallback(on_train_batch_end=press)])
    assert 5 <= job._step <= 14
    assert job.fit(x, y, batch=5, verbose=False).history["loss"]
    assert float(sl.asarray([1.0, 2.0]).sum()) == 3.0


def test_ctrl_c_while_a_step_is_waited_for(data):
    x, y = data
    job = sl.Job(Net(), loss=nn.functional.cross_entropy, optimizer=optim.Adam())
    timer_ran = []

    def ring(*_):
        timer_ran.append(True)
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 1.0)  # and again, as users press it
        with pytest.raises(KeyboardInterrupt):
            job.fit(x, y, epochs=100_000, batch=16, verbose=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert timer_ran and np.isfinite(job.evaluate(x, y)["loss"])


def test_stop_training(data, make_job):
    x, y = data
    job = make_job()

    def stop(i, logs):
        job.stop_training = i == 1

    history = job.fit(x, y, epochs=9, batch=5, verbose=False,
                      callbacks=[callbacks.LambdaCallback(on_train_batch_end=stop)])
    assert history.epoch == [0]
    nan = np.where(np.arange(70)[:, None] == 69, np.nan, x).astype("float32")
    assert make_job().fit(nan, y, epochs=3, batch=70, verbose=False,
                          callbacks=[callbacks.TerminateOnNaN()]).epoch == [0]


def test_fit_in_fit_is_refused(data, make_job):
    x, y = data
    job = make_job()
    log = callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: job.step(x[:16], y[:16]))
    with pytest.raises(RuntimeError, match="in fit"):
        job.fit(x, y, batch=16, callbacks=[log], verbose=False)
    measured = []
    log = callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: measured.append(job.evaluate(x, y)["loss"]))
    job.fit(x, y, batch=4, callbacks=[log], verbose=False)
    assert len(set(measured)) > 1


def test_debug_steps_run_op_by_op_with_equal_results(data, make_job, recwarn):
    x, y = data
    seen = []

    class Watched(Net):
        def forward(self, x):
            h = sl.relu(self.fc1(x))
            if h._expr.is_concrete:  # what a debugger would see
                seen.append(float(h.mean()))
            return self.fc2(self.drop(h))

    jobs = [sl.Job(m, loss=nn.functional.cross_entropy, optimizer=optim.Adam(1e-2)) for m in (Watched(0.3), Net(0.3))]
    a = jobs[0].fit(x, y, epochs=2, batch=16, debug_steps=3, verbose=False)
    b = jobs[1].fit(x, y, epochs=2, batch=16, verbose=False)
    assert len(seen) == 3 and a.history == b.history
    assert not recwarn.list, "the loss op by op is the plan's"
    for name, value in jobs[0].state_dict().items():
        np.testing.assert_array_equal(value.numpy(), jobs[1].state_dict()[name].numpy())


def test_stepping_evaluates_as_the_line_runs():
    with sl.stepping():
        x = sl.asarray([1.0, 4.0])
        y = sl.sqrt(x)
        assert y._expr.value() is not None
        assert float(sl.grad(lambda a: a * a)(sl.asarray(3.0))) == 6
        with pytest.raises(sl.Error, match=rf"{__file__}:\d+: log.* made infinity"):
            sl.log(x - 1.0)
        with pytest.raises(sl.Error, match="divide.* made") as caught:
            y / 0.0
        assert caught.value.place[0] == __file__
    assert (y + 1)._expr.value() is None


def test_debug_steps_name_the_op_that_made_nan(data):
    x, y = data

    class Bad(Net):
        def forward(self, x):
            return super().forward(sl.log(x))

    job = sl.Job(Bad(), loss=nn.functional.cross_entropy, optimizer=optim.Adam())
    with pytest.raises(sl.Error, match=rf"{__file__}:\d+: log_0 made NaN from finite numbers in step 0"):
        job.fit(x, y, batch=16, debug_steps=1, verbose=False)


def test_a_bad_label_is_one_clear_error_and_the_job_lives(data, make_job):
    x, y = data
    job = make_job()
    job.fit(x, y, batch=16, verbose=False)
    before = job.state_dict()
    bad = y.copy()
    bad[40] = 3
    for config in (None, {"mesh": {"axes": {"dp": 2, "tp": 2}}}):
        with pytest.raises((IndexError, ValueError, sl.Error)) as caught:
            job.fit(x, bad, batch=16, config=config, verbose=False)
        text = str(caught.value)
        assert "cross_entropy" in text and "3" in text and "test_fit.py:" in text
        for name, value in job.state_dict().items():
            np.testing.assert_allclose(value.numpy(), before[name].numpy())
        assert np.isfinite(job.fit(x, y, batch=16, config=config, verbose=False).history["loss"][0])
        before = job.state_dict()


def test_nothing_is_left_behind(data, make_job):
    import gc
    import threading
    import weakref

    x, y = data

    def threads():
        return len(os.listdir("/proc/self/task"))

    make_job().fit(x, y, batch=16, config={"mesh": {"axes": {"dp": 2, "tp": 2}}}, verbose=False)
    gc.collect()
    before = threads()
    for _ in range(3):
        job = make_job()
        job.fit(x, y, batch=16, config={"mesh": {"axes": {"dp": 2, "tp": 2}}}, verbose=False)
        gone = weakref.ref(job)
        del job
        gc.collect()
        assert gone() is None
    assert threads() <= before and threading.active_count() == 1
