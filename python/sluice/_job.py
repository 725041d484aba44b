# SPDX-License-Identifier: Apache-2.0
"""Job: a model with its loss, optimizer and data, planned and run as one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _config, _sluice
from ._errors import Error, config_error
from ._entry import Entry, Request, source_of, trace
from ._fit import Fit, Hook, Stream, batches, evaluate_entry
from ._plan import Plan
from ._tables import plugin_paths, tables
from ._tensor import Tensor, as_tensor
from .data import ArrayData, Data, Field, arrays_of, field_names
from .nn.module import IncompatibleKeys, Module, draw, match_state

if TYPE_CHECKING:
    from .callbacks import Callback, History
    from .optim import Optimizer

_DEFAULT_BATCH = 32  # as Keras


class Job:
    """A model with its loss, optimizer and data. It owns the values that it trains; `model` shows them.

    model: its `forward` gets the first fields of a batch.
    loss: gets the model's outputs and the remaining fields; None: the model returns its loss itself.
    optimizer: one of `sl.optim`; None: nothing is updated.
    data: one of `sl.data`, for `fit` and `plan`.
    seed: of initial weights, dropout and the order of the data.
    """

    def __init__(
        self,
        model: Module,
        *,
        loss: Callable[..., Tensor] | None = None,
        optimizer: Optimizer | None = None,
        data: Data | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if not isinstance(model, Module):
            raise TypeError(f"Job: model is {type(model).__name__}, not an nn.Module")
        if data is not None and not isinstance(data, Data):
            raise TypeError(f"Job: data is {type(data).__name__}; use sl.data.arrays(x, y) or sl.data.idx(path)")
        self.model, self.loss, self.optimizer, self.data = model, loss, optimizer, data
        self.seed, self.name = seed, name or type(model).__name__
        self.stop_training = False
        self._modules = list(model.modules())
        self._parameters = list(model.parameters())
        self._cells = {n: p._cell for n, p in model.named_parameters()}
        self._seen = {n: cell.writes for n, cell in self._cells.items()}
        # As another process would: what another job makes of this model later is not ours.
        self._values: dict[str, Any] = {n: c.read() for n, c in self._cells.items() if not c.is_undrawn}
        self._home: Any = None  # the session with the values; None: they are in _values
        self._lost: BaseException | None = None  # what took the values with it
        self._step = 0
        self._fitting = False
        self._config: Any = None
        self._entries: dict[Request, Entry] = {}
        # Of step(): what the last batch was like, the bound of its plan, its entry.
        self._recent: tuple[Any, int, Entry] | None = None
        self._hooks: tuple[list[Hook], list[Hook]] = ([], [])
        self._version = 0  # of the values, as evaluation sees them
        self._said: set[str] = set()

    # ---- training ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        epochs: int = 1,
        batch: int | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        validation_data: Any = None,
        debug_steps: int = 0,
        fetch: Sequence[str] = (),
        verbose: bool = True,
    ) -> History:
        """Trains for some epochs.

        x, y: arrays; without them the job's data.
        batch: rows of one step, over all devices; it overrides the config's global_batch.
        config: a TOML file, or a dict with the same keys; without it the one that was used last, or one device.
        validation_data: (x, y) or one of `sl.data`, evaluated after each epoch.
        debug_steps: so many steps run op by op on real values first, so that a debugger can stop in the model.
        fetch: names of tensors that the callbacks' logs hold too.
        verbose: whether to show progress.
        """
        self._check_free()
        data = self._data(x, y)
        if self.optimizer is None:
            raise ValueError("fit needs an optimizer: Job(..., optimizer=sl.optim.Adam())")
        loaded = self._load(config)
        bound = self._batch(batch, loaded)
        entry = self._entry("train", data.fields, bound, source_of(data, data.shuffle), names_of(fetch), loaded)
        validation = None if validation_data is None else self._validation(validation_data)
        fit = Fit(self, entry, data, bound, epochs, callbacks, validation, debug_steps, verbose)
        return fit.run()

    def step(self, *batch: Any, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """Trains on one batch, given as the arrays of its fields. Returns {"loss": ...} and what is fetched."""
        self._check_free()
        arrays = arrays_of(batch, "step")
        entry = self._step_entry(arrays, names_of(fetch))
        session = self._activate(entry)

        def start(_: int) -> None:
            for hook in list(self._hooks[0]):
                hook(self._step)
            session.start_step(dict(zip(entry.inputs, arrays, strict=True)))

        stream = Stream(self, session, 1, start, 1)
        try:
            with contextlib.closing(stream.run()) as results:
                metrics = metrics_of(next(results)[1])
        finally:
            self._advance(entry, stream.done)
        for hook in list(self._hooks[1]):
            hook(self._step - 1, metrics)
        return metrics

    def before_step(self, function: Callable[[int], Any]) -> Hook:
        """Calls `function(step)` before each step, when the steps before it are done."""
        return Hook(self._hooks[0], function)

    def after_step(self, function: Callable[[int, dict[str, Any]], Any]) -> Hook:
        """Calls `function(step, metrics)` after each step, before the next one begins."""
        return Hook(self._hooks[1], function)

    # ---- evaluation -------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        *,
        data: Data | None = None,
        batch: int | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> dict[str, float]:
        """The mean loss over the data and, for classes, the accuracy. Dropout is off."""
        if data is None:
            data = self._data(x, y)
        loaded = self._load(config)
        bound = self._batch(batch, loaded)
        entry = self._entry("evaluate", data.fields, bound, source_of(data, False), (), loaded)
        return evaluate_entry(self, entry, data, bound)

    def predict(
        self,
        x: Any,
        *,
        batch: int | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> Any:
        """The model's outputs for arrays with one row an example. Dropout is off."""
        import numpy as np

        data = ArrayData(tuple(x) if isinstance(x, tuple) else (x,), shuffle=False, seed=None)
        loaded = self._load(config)
        bound = self._batch(batch, loaded)
        entry = self._entry("predict", data.fields, bound, None, (), loaded)
        session = self._activate(entry)
        parts = [[outputs[name] for name in entry.outputs] for _, outputs in batches(self, session, entry, data, bound)]
        results = tuple(as_tensor(np.concatenate(part)) for part in zip(*parts, strict=True))
        return results[0] if len(results) == 1 else results

    # ---- the plan, and what is kept ---------------------------------------------------------------------------------

    def plan(
        self, config: str | os.PathLike[str] | Mapping[str, Any] | None = None, *, batch: int | None = None
    ) -> Plan:
        """What would run: devices, chains, moves, registers and memory."""
        entry, loaded = self._training_entry(config, batch)
        return Plan(_sluice.make_plan(entry.built, loaded, tables(self._plugins(entry, loaded))))

    def save(self, path: str | os.PathLike[str], *, batch: int | None = None) -> None:
        """Writes the graph, the optimizer and the data's description: what `sluice submit` takes. No weights."""
        entry, _ = self._training_entry(None, batch)
        _sluice.save_job(entry.built, os.fspath(path))

    def state_dict(self, *, optimizer: bool = False) -> dict[str, Tensor]:
        """The parameters by name; with `optimizer` its states too, as "fc1.weight.exp_avg"."""
        names = list(self._cells)
        if self._home is not None:
            self._take_over()
            if optimizer:
                names += [n for n in self._home.variables() if self._is_state(n)]
            return {name: as_tensor(self._home.variable(name)) for name in names}
        self._draw(self.seed)
        if optimizer:
            names += [n for n in self._values if self._is_state(n)]
        return {name: as_tensor(self._values[name]) for name in names}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Sets parameters, and states of the optimizer where given, by name."""
        types = {n: (p.shape, p._expr.dtype) for n, p in self.model.named_parameters()}
        types |= {n: (types[o][0], types[o][1]) for n in state_dict if (o := n.rpartition(".")[0]) in types
                  and n not in types and n.rpartition(".")[2] != "step"}
        types |= {n: ((), "float32") for n in state_dict if n.endswith(".step") and n[:-5] in types}
        keys, values = match_state(types, state_dict, strict, f"the job '{self.name}'")
        self._lost = None
        self._version += 1
        for name, cell in self._cells.items():
            self._seen[name] = cell.writes
        if self._home is None:
            self._values |= values
        else:
            held = set(self._home.variables())
            for name, value in values.items():
                if name in held:
                    self._home.set_variable(name, value)
        return keys

    def tensors(self) -> list[str]:
        """The names that `fetch=` takes, beside "NAME.grad"."""
        entry, _ = self._training_entry(None, None)
        return sorted(entry.built.tensor_names)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _data(self, x: Any, y: Any) -> Data:
        if x is None:
            if self.data is None:
                raise ValueError("there is no data: give Job(data=...) or arrays x and y")
            return self.data
        if isinstance(x, Data):
            return x
        return ArrayData((x,) if y is None else (x, y), shuffle=True, seed=None)

    def _check_free(self) -> None:
        if self._fitting:
            raise RuntimeError("this job is in fit(): another training loop cannot run inside of it")

    def _validation(self, data: Any) -> Data:
        return data if isinstance(data, Data) else ArrayData(tuple(data), shuffle=False, seed=None)

    def _step_entry(self, arrays: list[Any], fetch: tuple[str, ...]) -> Entry:
        """The entry that takes a batch: the one of the last step where it fits."""
        rows = len(arrays[0])
        if rows == 0:
            raise ValueError("step: the batch has no rows")
        key = (fetch, self._flags(), *((a.dtype, a.shape[1:]) for a in arrays))
        if self._recent is not None and self._recent[0] == key and rows <= self._recent[1]:
            return self._recent[2]
        names = field_names(len(arrays))
        if self.data is not None and len(self.data.fields) == len(arrays):
            names = [f.name for f in self.data.fields]
        fields = tuple(Field(n, a.dtype.name, a.shape[1:]) for n, a in zip(names, arrays, strict=True))
        loaded = self._load(None)
        bound = self._bound_of("train", fields, fetch, loaded, rows)
        entry = self._entry("train", fields, bound, None, fetch, loaded)
        self._recent = (key, bound, entry)
        return entry

    def _flags(self) -> tuple[bool, ...]:
        """What of the model a training graph depends on, beside its structure."""
        return (*(m.training for m in self._modules), *(p.requires_grad for p in self._parameters))

    def _load(self, config: Any) -> _sluice.Config:
        given = os.environ.get("SLUICE_CONFIG")  # set by `sluice run --config`
        if given:
            if config is not None and config != given:
                self._say(f"the config is {given}, as `sluice run` was told; {config!r} is not read")
            config = given
        if config is not None:
            loaded = _config.load(config)
            self._config, self._recent = loaded.copy(), None
            return loaded
        return self._config.copy() if self._config is not None else _sluice.default_config()

    def _batch(self, batch: int | None, config: _sluice.Config) -> int:
        if batch is None:
            return config.global_batch or _DEFAULT_BATCH
        if batch <= 0:
            raise ValueError(f"batch is {batch}; it must be positive")
        if config.global_batch not in (0, batch):
            self._say(f"batch={batch} overrides global_batch={config.global_batch} of {config.file}")
        return batch

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            print(text)

    def _bound_of(self, kind: str, fields: Any, fetch: Sequence[str], config: Any, rows: int) -> int:
        """The bound of a plan that takes a batch of `rows`: a smaller batch needs no new plan."""
        bounds = [
            r.bound
            for r in self._entries
            if (r.kind, r.fields, r.source, r.fetch) == (kind, fields, None, tuple(fetch)) and r.bound >= rows
        ]
        return min(bounds, default=max(rows, config.global_batch))

    def _training_entry(self, config: Any, batch: int | None) -> tuple[Entry, _sluice.Config]:
        loaded = self._load(config)
        bound = self._batch(batch, loaded)
        if self.data is not None:
            data = self.data
            entry = self._entry("train", data.fields, bound, source_of(data, data.shuffle), (), loaded)
            return entry, loaded
        for request, entry in self._entries.items():
            if request.kind == "train":
                loaded.global_batch = request.bound
                return entry, loaded
        raise ValueError("the shapes are not known yet: give Job(data=...), or call fit or step first")

    def _entry(self, kind: str, fields: Any, bound: int, source: Any, fetch: Sequence[str], config: Any) -> Entry:
        config.global_batch = bound
        flags = self._flags() if kind == "train" else ()
        request = Request(kind, fields, bound, source, tuple(fetch), flags, config.text)
        if request not in self._entries:
            entry = trace(self, request, self._seed(config))
            entry.config = config
            self._plugins(entry, config)
            self._entries[request] = entry
        return self._entries[request]

    def _seed(self, config: _sluice.Config) -> int:
        return config.seed if config.seed >= 0 else self.seed

    def _plugins(self, entry: Entry, config: _sluice.Config) -> tuple[str, ...]:
        """The plug-ins of the config; one whose op is used must stand there (without a config it need not)."""
        if not config.file:
            return entry.plugins
        listed = plugin_paths(config.plugins, os.path.dirname(config.file))
        for path in entry.plugins:
            if path not in listed:
                raise config_error(
                    f"the model uses an op of {path}, which [plugins] does not list",
                    config.file,
                    f'add ops = ["{path}"] there',
                )
        return listed

    def _activate(self, entry: Entry) -> Any:
        """The entry's session, started, with the values of now."""
        if self._lost is not None:
            raise Error("this job's values were lost when its session failed; give it values with "
                                "load_state_dict") from self._lost
        if entry.session is None:
            plugins = self._plugins(entry, entry.config)
            entry.config.plugins = list(plugins)
            entry.session = _sluice.start(entry.built, entry.config, tables(plugins))
            entry.parameters = [n for n in entry.session.variables() if n in self._cells]
        self._take_over()
        if entry.session is not self._home and entry.synced != (id(self._home), self._version):
            self._draw(self._seed(entry.config))
            self._copy_values(entry.session)
            entry.synced = (id(self._home), self._version)
        if entry.built.training:
            self._home = entry.session
            if entry.step != self._step:
                entry.session.drain()
                entry.session.set_step(self._step)
                entry.step = self._step
            for name in entry.parameters:
                self._cells[name].link(entry.session, name)
        return entry.session

    def _draw(self, seed: int) -> None:
        missing = [(n, c) for n, c in self._cells.items() if n not in self._values and c.init is not None]
        if self._home is None and missing:
            self._values |= dict(zip((n for n, _ in missing), draw(missing, seed), strict=True))

    def _copy_values(self, session: Any) -> None:
        held = set(self._home.variables()) if self._home is not None else set()
        for name in session.variables():
            if name in held:
                session.set_variable(name, self._home.variable(name))
            elif name in self._values:
                session.set_variable(name, self._values[name])

    def _take_over(self) -> None:
        """Values that the user wrote into the model since the last step."""
        for name, cell in self._cells.items():
            if cell.writes != self._seen[name]:
                self._seen[name] = cell.writes
                self._version += 1
                if self._home is not None and name in self._home.variables():
                    self._home.drain()
                    self._home.set_variable(name, cell.read())
                self._values[name] = cell.read()

    def _is_state(self, name: str) -> bool:
        return name not in self._cells and name.rpartition(".")[0] in self._cells

    def _advance(self, entry: Entry, steps: int) -> None:
        self._step += steps
        self._version += 1
        entry.step = self._step

    def _snapshot(self) -> None:
        """Keeps the values of now: what is left when the session fails."""
        if self._home is not None:
            self._values |= {n: self._home.variable(n) for n in self._home.variables()}

    def _failed(self, session: Any, error: BaseException) -> None:
        """Gives up a session that failed. The values become those of the last snapshot."""
        self._entries, self._recent = {r: e for r, e in self._entries.items() if e.session is not session}, None
        if session is not self._home:
            return
        self._home = None
        self._version += 1
        for name, cell in self._cells.items():
            if name not in self._values:
                self._lost = error
            else:
                cell.write(self._values[name])
                self._seen[name] = cell.writes


def names_of(fetch: Sequence[str]) -> tuple[str, ...]:
    """What to fetch, as a tuple; a lone name is one."""
    return (fetch,) if isinstance(fetch, str) else tuple(fetch)


def metrics_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs as metrics: numbers as Python's, arrays as tensors."""
    return {n: float(v) if v.shape == () and v.dtype.kind == "f" else as_tensor(v) for n, v in outputs.items()}
