# SPDX-License-Identifier: Apache-2.0
"""Jobs: training equal to NumPy's, evaluation, two jobs at once, what a model may be, what goes wrong."""

import numpy as np
import pytest
from conftest import Net, numpy_step

import sluice as sl
from sluice import nn, optim

MESHES = [None, {"mesh": {"axes": {"dp": 2}}}, {"mesh": {"axes": {"dp": 2, "tp": 2}}}]


def sgd(state, grads, memory, lr=0.1, momentum=0.9, decay=0.01):
    for name, grad in grads.items():
        grad = grad + decay * state[name]
        memory[name] = momentum * memory[name] + grad if name in memory else grad
        state[name] = state[name] - lr * (grad + momentum * memory[name])


def adam(state, grads, memory, lr=0.01, decay=0.0, decoupled=0.0):
    memory["t"] = t = memory.get("t", 0) + 1
    for name, grad in grads.items():
        state[name] = state[name] * (1 - lr * decoupled)
        grad = grad + decay * state[name]
        m, v = memory.get(name, (0.0, 0.0))
        memory[name] = m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        state[name] = state[name] - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


OPTIMIZERS = [
    (lambda: optim.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True), sgd),
    (lambda: optim.Adam(0.01), adam),
    (lambda: optim.AdamW(0.01, weight_decay=0.1), lambda s, g, m: adam(s, g, m, decoupled=0.1)),
]


@pytest.mark.parametrize("make, update", OPTIMIZERS, ids=["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("config", MESHES, ids=["single", "dp2", "dp2_tp2"])
def test_fit_equals_a_loop_in_numpy(make, update, config, data, make_job):
    x, y = data
    job = make_job(optimizer=make())
    state = {n: v.numpy().astype("float64") for n, v in job.state_dict().items()}
    memory, losses = {}, []
    for epoch in range(3):
        total = 0.0
        order = sl.data.arrays(x, y).order(0, 70, 0, epoch)
        assert sorted(order) == list(range(70)) and order != list(range(70))
        for begin in range(0, 70, 16):
            rows = order[begin : begin + 16]
            loss, grads = numpy_step(state, x[rows], y[rows])
            total += loss * len(rows)
            update(state, grads, memory)
        losses.append(total / 70)
    history = job.fit(x, y, epochs=3, batch=16, config=config, verbose=False)
    np.testing.assert_allclose(history.history["loss"], losses, rtol=1e-4)
    for name, value in job.state_dict().items():
        scale = np.linalg.norm(state[name])
        assert np.linalg.norm(value.numpy() - state[name]) < 1e-4 * scale, name
    assert history.epoch == [0, 1, 2]


def test_step_equals_fit(data, make_job):
    x, y = data
    fitted, stepped = make_job(p=0.2), make_job(p=0.2)
    fitted.fit(x, y, epochs=2, batch=16, verbose=False)
    losses = []
    for epoch in range(2):
        order = sl.data.arrays(x, y).order(0, 70, 0, epoch)
        for begin in range(0, 70, 16):
            rows = order[begin : begin + 16]
            losses.append(stepped.step(x[rows], y[rows])["loss"])
    assert len(stepped._entries) == 1  # the smaller last batch needed no new plan
    for name, value in fitted.state_dict().items():
        np.testing.assert_allclose(value.numpy(), stepped.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)


def test_evaluate_and_predict(data, make_job):
    x, y = data
    job = make_job(p=0.5)
    job.fit(x, y, epochs=1, batch=16, verbose=False)
    loss, _ = numpy_step(job.state_dict(), x, y)
    outputs = job.predict(x, batch=32)
    assert outputs.shape == (70, 3)
    accuracy = (outputs.numpy().argmax(1) == y).mean()
    for batch in (16, 70, 100):
        metrics = job.evaluate(x, y, batch=batch)
        assert metrics == pytest.approx({"loss": loss, "accuracy": accuracy}, rel=1e-5)
    assert job.model.drop.training
    np.testing.assert_allclose(job.model.eval()(x).numpy(), outputs.numpy(), rtol=1e-5, atol=1e-6)


def test_training_goes_on_under_another_batch_and_another_config(data, make_job):
    x, y = data
    one, two = make_job(), make_job()
    for config, batch in ((None, 16), (MESHES[2], 16), (None, 10), (MESHES[1], 16)):
        one.fit(x, y, batch=batch, verbose=False)
        two.fit(x, y, batch=batch, config=config, verbose=False)
        for name, value in one.state_dict(optimizer=True).items():
            other = two.state_dict(optimizer=True)[name].numpy()
            np.testing.assert_allclose(other, value.numpy(), rtol=1e-3, atol=1e-6)


def test_two_jobs_interleaved_are_as_alone(data, make_job):
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 64, 8)]
    model = Net(0.3)

    def jobs():
        yield lambda: make_job(p=0.3, seed=1)
        yield lambda: sl.Job(model, loss=nn.functional.cross_entropy, optimizer=optim.SGD(0.1), seed=2)
        yield lambda: sl.Job(model, loss=nn.functional.cross_entropy, optimizer=optim.SGD(0.2), seed=2)

    makers = list(jobs())
    alone = []
    for make in (makers[0], *(lambda lr=lr: sl.Job(Net(0.3), loss=nn.functional.cross_entropy,
                                                   optimizer=optim.SGD(lr), seed=2) for lr in (0.1, 0.2))):
        job = make()
        alone.append([job.step(*b)["loss"] for b in batches])
    together = [make() for make in makers]
    losses = [[], [], []]
    for b in batches:
        for job, into in zip(together, losses, strict=True):
            into.append(job.step(*b)["loss"])
    assert losses == alone


def test_the_model_shows_what_the_job_trained_and_the_job_takes_what_it_is_given(data, make_job):
    x, y = data
    job = make_job()
    before = job.model.fc1.weight.numpy()
    job.step(x[:16], y[:16])
    after = job.model.fc1.weight.numpy()
    assert (before != after).any()
    np.testing.assert_array_equal(after, job.state_dict()["fc1.weight"].numpy())
    job.model.load_state_dict({**job.state_dict(), "fc1.weight": before})
    job.step(x[:16], y[:16])
    again = job.model.fc1.weight.numpy()
    assert abs(again - before).max() < 0.05 and (again != before).any()


def test_state_moves_between_jobs_with_the_optimizer(data, make_job, tmp_path):
    x, y = data
    whole = make_job()
    first = make_job()
    for job in (whole, first):
        for _ in range(3):
            job.step(x[:16], y[:16])
    sl.save_safetensors(first.state_dict(optimizer=True), tmp_path / "job.safetensors")
    second = make_job()
    assert second.load_state_dict(sl.load_safetensors(tmp_path / "job.safetensors")) == ([], [])
    for _ in range(3):
        expected, got = whole.step(x[16:32], y[16:32]), second.step(x[16:32], y[16:32])
    assert got["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_a_model_may_return_its_loss(data):
    x, y = data

    class WithLoss(Net):
        def forward(self, x, y):
            return nn.functional.cross_entropy(super().forward(x), y)

    job = sl.Job(WithLoss(), optimizer=optim.Adam(1e-2))
    other = sl.Job(Net(), loss=lambda outputs, y: nn.functional.cross_entropy(outputs, y), optimizer=optim.Adam(1e-2))
    a = job.fit(x, y, batch=16, verbose=False).history["loss"]
    assert a == other.fit(x, y, batch=16, verbose=False).history["loss"]
    assert job.evaluate(x, y) == pytest.approx({"loss": other.evaluate(x, y)["loss"]})


def test_gradients_may_stand_in_a_loss(data):
    x, y = data

    def loss(outputs, y):
        penalty = sl.square(sl.grad(lambda o: nn.functional.cross_entropy(o, y))(outputs)).sum()
        return nn.functional.cross_entropy(outputs, y) + 0.1 * penalty

    job = sl.Job(Net(), loss=loss, optimizer=optim.Adam(1e-2))
    losses = job.fit(x, y, epochs=3, batch=16, verbose=False).history["loss"]
    assert losses[2] < losses[0]


def test_arrays_in_a_model_are_constants_of_the_plan(data):
    x, y = data
    mask = np.array([1, 1, 0], "float32")

    class Masked(Net):
        def forward(self, x):
            return super().forward(x) * mask

    job = sl.Job(Masked(), loss=nn.functional.cross_entropy, optimizer=optim.Adam(1e-2))
    job.step(x[:16], y[:16])
    assert (job.predict(x).numpy()[:, 2] == 0).all()
    assert list(job.state_dict()) == list(Net().state_dict())


def test_frozen_parameters_stay(data, make_job):
    x, y = data
    job = make_job()
    job.model.fc1.weight.requires_grad = False
    before = job.state_dict()
    job.fit(x, y, batch=16, verbose=False)
    after = job.state_dict()
    np.testing.assert_array_equal(before["fc1.weight"].numpy(), after["fc1.weight"].numpy())
    assert (before["fc2.weight"].numpy() != after["fc2.weight"].numpy()).any()
    job.model.fc1.weight.requires_grad = True
    job.fit(x, y, batch=16, verbose=False)
    assert (before["fc1.weight"].numpy() != job.state_dict()["fc1.weight"].numpy()).any()


def test_fetch_takes_any_tensor(data, make_job):
    x, y = data
    job = make_job()
    job.step(x[:16], y[:16])
    state = job.state_dict()
    _, grads = numpy_step(state, x[:16], y[:16])
    names = ("fc1.matmul_0", "fc1.weight", "fc2.weight.grad", "x", "fc1.bias.grad")
    metrics = job.step(x[:16], y[:16], fetch=names)
    assert set(metrics) == {"loss", *names}
    np.testing.assert_allclose(metrics["fc1.matmul_0"].numpy(), x[:16] @ state["fc1.weight"].numpy().T, rtol=1e-4)
    np.testing.assert_array_equal(metrics["fc1.weight"].numpy(), state["fc1.weight"].numpy())
    np.testing.assert_allclose(metrics["fc2.weight.grad"].numpy(), grads["fc2.weight"], rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(metrics["x"].numpy(), x[:16])
    assert "relu_0" in job.step(x[:16], y[:16], fetch="relu_0")
    assert {"fc1.matmul_0", "relu_0", "fc1.weight", "x"} <= set(job.tensors())
    with pytest.raises(KeyError, match="did you mean 'fc1.matmul_0'"):
        job.step(x[:16], y[:16], fetch=("fc1.matmul_O",))


def test_batches_have_shapes_only_inside_of_a_model(data):
    x, y = data

    class Looks(Net):
        def forward(self, x):
            assert len(x.shape) == 2 and str(x.shape[0]) == "16b"
            rows = x.reshape((x.shape[0] * 2, 3)).reshape((-1, 6))
            self.seen = rows.shape == x.shape
            return super().forward(rows)

    job = sl.Job(Looks(), loss=nn.functional.cross_entropy, optimizer=optim.Adam())
    job.fit(x, y, batch=16, verbose=False)
    assert job.model.seen

    class Asks(Net):
        def forward(self, x):
            return super().forward(x) if float(x.sum()) > 0 else x

    with pytest.raises(ValueError, match="only shapes are known"):
        sl.Job(Asks(), loss=nn.functional.cross_entropy, optimizer=optim.Adam()).step(x, y)

    class Counts(Net):
        def forward(self, x):
            return super().forward(x) / len(x)

    with pytest.raises(TypeError, match="only when a batch arrives"):
        sl.Job(Counts(), loss=nn.functional.cross_entropy, optimizer=optim.Adam()).step(x, y)


def test_wrong_jobs_are_told(data, make_job, tmp_path):
    x, y = data
    for call, error, text in [
        (lambda: sl.Job(3), TypeError, "not an nn.Module"),
        (lambda: sl.Job(Net(), data=x), TypeError, "sl.data.arrays"),
        (lambda: make_job().fit(), ValueError, "no data"),
        (lambda: sl.Job(Net(), loss=nn.functional.cross_entropy).fit(x, y), ValueError, "optimizer"),
        (lambda: make_job().fit(x, y[:3]), ValueError, "one number of rows"),
        (lambda: make_job().fit(x, y, batch=0), ValueError, "positive"),
        (lambda: make_job().step(x[:0], y[:0]), ValueError, "no rows"),
        (lambda: make_job().step(x[:, :5], y), ValueError, "matmul"),
        (lambda: make_job().step(x), TypeError, "more fields"),
        (lambda: sl.Job(Net(), loss=lambda o, y: o, optimizer=optim.Adam()).step(x, y), ValueError, "one real number"),
        (lambda: sl.Job(Net(), loss=lambda o, y: 3.0, optimizer=optim.Adam()).step(x, y), TypeError, "not a tensor"),
        (lambda: make_job().plan(), ValueError, "shapes are not known"),
        (lambda: make_job().fit(x, y, config=3), TypeError, "path or a dict"),
    ]:
        with pytest.raises(error, match=text):
            call()

    class Foreign(nn.Module):
        def forward(self, x):
            return outside(x)

    outside = nn.Linear(6, 3)
    with pytest.raises(ValueError, match="does not hold: bias, weight"):
        sl.Job(Foreign(), loss=nn.functional.cross_entropy, optimizer=optim.Adam()).step(x, y)


def test_configs(data, make_job, tmp_path, capsys, monkeypatch):
    x, y = data
    path = tmp_path / "wrong.toml"
    path.write_text("[mesh]\naxes = { dp = 2 }\n\n[train]\nglobal_bach = 16\n")
    with pytest.raises(sl.ConfigError, match=r"wrong.toml:5: .*global_bach") as caught:
        make_job().fit(x, y, config=path)
    assert "global_batch" in str(caught.value) and caught.value.place[1] == 5 and isinstance(caught.value, ValueError)
    with pytest.raises(sl.ConfigError, match="meesh"):
        make_job().fit(x, y, config={"meesh": {}})
    with pytest.raises(sl.ConfigError, match="none.toml"):
        make_job().fit(x, y, config=tmp_path / "none.toml")
    path.write_text("[train]\nglobal_batch = 10\n")
    job = make_job()
    job.fit(x, y, batch=35, config=path, verbose=False)
    job.fit(x, y, batch=35, config=path, verbose=False)
    assert capsys.readouterr().out.count("batch=35 overrides global_batch=10") == 1
    assert job.fit(x, y, config=path, verbose=False) and job._step % 7 == 0
    monkeypatch.setenv("SLUICE_CONFIG", str(path))  # what `sluice run --config` sets
    job = make_job()
    job.fit(x, y, config={"train": {"global_batch": 70}}, verbose=False)
    assert job._step == 7 and "is not read" in capsys.readouterr().out


def test_plans_can_be_looked_at_and_saved(data, make_job, tmp_path, capsys):
    x, y = data
    job = make_job(data=sl.data.arrays(x, y))
    plan = job.plan(MESHES[2], batch=16)
    assert plan.hash == job.plan(MESHES[2], batch=16).hash != job.plan(MESHES[1], batch=16).hash
    assert "fc1.weight" in plan.text and plan.hash in repr(plan)
    plan.show()
    shown = capsys.readouterr().out
    assert "4 cpu devices" in shown and "dp=2 tp=2" in shown
    import json

    assert json.loads(plan.json)
    job.save(tmp_path / "net.job", batch=16)
    first = (tmp_path / "net.job").read_bytes()
    job.save(tmp_path / "net.job", batch=16)
    assert first == (tmp_path / "net.job").read_bytes() and 0 < len(first) < 20_000


def test_idx_data(tmp_path, make_job):
    import gzip

    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (50, 4, 3), "uint8"), rng.integers(0, 3, 50).astype("uint8")

    def header(kind, *dims):
        return bytes([0, 0, 8, kind]) + b"".join(d.to_bytes(4, "big") for d in dims)

    for split in ("train", "t10k"):
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header(3, 50, 4, 3) + images.tobytes()))
        (tmp_path / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header(1, 50) + labels.tobytes()))
    train, test = (sl.data.idx(tmp_path, split=s) for s in ("train", "test"))
    assert len(train) == 50 and [f.name for f in train.fields] == ["image", "label"] and "50 rows" in repr(train)
    pixels = (images / 255).astype("float32")

    def job(data):
        net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
        return sl.Job(net, loss=nn.functional.cross_entropy, optimizer=optim.SGD(0.1), data=data)

    read, fed = job(train), job(sl.data.arrays(pixels, labels.astype("int64")))
    for config in MESHES:
        losses = [j.fit(epochs=2, batch=16, config=config, verbose=False).history["loss"] for j in (read, fed)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    assert read.evaluate(data=test) == pytest.approx(fed.evaluate(pixels, labels.astype("int64")), rel=1e-5)
    with pytest.raises(FileNotFoundError, match="no images of the split 'train'"):
        sl.data.idx(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no split 'trian'"):
        sl.data.idx(tmp_path, split="trian")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"not gzip at all")
    with pytest.raises(OSError, match="train-images"):
        sl.data.idx(tmp_path)
