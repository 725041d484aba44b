# SPDX-License-Identifier: Apache-2.0
"""Entry points of a job: the model traced into a graph for training, evaluation or prediction."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _sluice
from ._context import using
from ._functions import table_function
from ._grad import gradients
from ._tables import Plugins, joined
from ._tensor import Tensor
from .data import Data, Field

if TYPE_CHECKING:
    from ._job import Job
    from .nn.module import Module


class Request(NamedTuple):
    """What an entry point is made for; equal requests share one plan."""

    kind: str  # "train" | "evaluate" | "predict"
    fields: tuple[Field, ...]
    bound: int  # of the batch
    source: tuple[str, tuple[tuple[str, Any], ...], bool] | None  # reader, its attributes, shuffle
    fetch: tuple[str, ...]
    flags: tuple[bool, ...]  # of modules and parameters
    config: str


class Entry:
    """A traced model, and its session once it runs."""

    def __init__(self, built: _sluice.BuiltJob, inputs: list[str], outputs: list[str], plugins: Plugins) -> None:
        self.built, self.inputs, self.outputs, self.plugins = built, inputs, outputs, plugins
        self.config: Any = None
        self.session: Any = None
        self.parameters: list[str] = []  # of the session's variables
        self.step = 0  # that the session starts next
        self.synced: Any = None  # which values it has


def source_of(data: Data | None, shuffle: bool) -> Any:
    """The part of a request that names a reader."""
    if data is None or not data.reader:
        return None
    return (data.reader, tuple(sorted(data.attrs.items())), shuffle)


@contextlib.contextmanager
def mode(model: Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode for a block. Modules that the user froze by eval() stay so."""
    saved = [(module, module.training) for module in model.modules()]
    try:
        if not training or not model.training:
            model.train(training)
        yield
    finally:
        for module, flag in saved:
            module.__dict__["training"] = flag


def positional_inputs(model: Module, fields: int, has_loss: bool) -> int:
    """How many of the fields the model takes; the loss gets the others."""
    if not has_loss:
        return fields
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return max(1, fields - 1)
    needed = sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
    return min(max(needed, 1), fields)


def run_model(job: Job, fields: Sequence[Tensor]) -> tuple[Any, Tensor | None]:
    """The model's outputs and its loss; the loss is None when the fields lack what it compares with."""
    count = positional_inputs(job.model, len(fields), job.loss is not None)
    with using(root=job.model, names={}, scope=""):
        outputs = job.model(*fields[:count])
        if job.loss is None:
            return outputs, outputs if isinstance(outputs, Tensor) else None
        if count == len(fields):
            return outputs, None
        return outputs, job.loss(outputs, *fields[count:])


def checked_loss(loss: Any) -> Tensor:
    """A loss that can be trained on."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"the loss is {type(loss).__name__}, not a tensor; a job without loss= needs a model that "
                        f"returns its loss, and one with loss= needs data with more fields than the model takes")
    if loss.shape != () or "float" not in loss._expr.dtype:
        raise ValueError(f"the loss must be one real number, not {loss._expr.type_text}; reduce it with mean()")
    return loss


def _fetched(job: Job, names: Sequence[str], loss: Tensor | None, outputs: list[tuple[str, Tensor]],
             inputs: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    plugins = outputs[0][1]._plugins
    known: dict[str, Tensor] = dict(inputs)
    known |= {n: Tensor(e, plugins) for n, e in _sluice.named_exprs([t._expr for _, t in outputs]).items()}
    parameters: dict[str, Tensor] = dict(job.model.named_parameters())
    known |= parameters
    found = []
    for name in names:
        base = name.removesuffix(".grad")
        if name in known:
            found.append((name, known[name]))
        elif base != name and base in known and loss is not None:
            found.append((name, gradients(loss, [known[base]])[0]))
        else:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(sorted(known))}"
            raise KeyError(f"fetch: this job has no tensor '{name}'{hint}")
    return found


def trace(job: Job, request: Request, seed: int) -> Entry:
    """Calls the model once on shapes and makes the graph."""
    batch = _sluice.batch_dim(request.bound)
    inputs = [
        (f.name, Tensor(_sluice.Expr.input(f.name, f.dtype, [batch, *f.row_shape]))) for f in request.fields
    ]
    training = request.kind == "train"
    fields = [tensor for _, tensor in inputs]
    with mode(job.model, training), using(stepping=False, keep=1):
        outputs, loss = run_model(job, fields)
        named: list[tuple[str, Tensor]] = []
        if request.kind == "predict":
            many = outputs if isinstance(outputs, list | tuple) else [outputs]
            named = [(f"output{i}", tensor) for i, tensor in enumerate(many)]
        else:
            loss = checked_loss(loss)
            named = [("loss", loss)]
        if request.kind == "evaluate" and job.loss is not None and _is_classification(outputs, fields[-1]):
            named.append(("correct", table_function("count_correct")(outputs, fields[-1])))
        named += _fetched(job, request.fetch, loss, named, inputs)
    plugins: Plugins = ()
    for _, tensor in named:
        plugins = joined(plugins, tensor._plugins)
    return Entry(_build(job, request, inputs, named, plugins, seed), [f.name for f in request.fields],
                 [name for name, _ in named], plugins)


def _is_classification(outputs: Any, target: Tensor) -> bool:
    return (
        isinstance(outputs, Tensor)
        and outputs.ndim == 2
        and target.ndim == 1
        and "int" in target._expr.dtype
        and outputs.shape[0] == target.shape[0]
    )


def _build(job: Job, request: Request, inputs: list[tuple[str, Tensor]], outputs: list[tuple[str, Tensor]],
           plugins: Plugins, seed: int) -> _sluice.BuiltJob:
    from ._tables import tables

    training = request.kind == "train"
    optimizer = job.optimizer if training else None
    used = {cell for _, cell in _sluice.cells_of([t._expr for _, t in outputs])}
    parameters = dict(job.model.named_parameters())
    if foreign := used - {p._cell for p in parameters.values()}:
        names = ", ".join(sorted(cell.name for cell in foreign))
        raise ValueError(f"the model uses parameters that it does not hold: {names}; make them attributes of a module")
    source = 0 if request.source is not None else -1
    sources = [] if request.source is None else [(request.source[0], dict(request.source[1]), request.source[2])]
    return _sluice.build_job(
        tables(plugins),
        outputs=[(name, t._expr) for name, t in outputs],
        inputs=[(name, t._expr, source, i if source == 0 else 0) for i, (name, t) in enumerate(inputs)],
        variables=[(n, p._expr, p.requires_grad) for n, p in parameters.items() if p._cell in used],
        sources=sources,
        name=job.name,
        loss="loss" if training else "",
        optimizer=optimizer._op if optimizer is not None else "",
        optimizer_attrs=optimizer._attrs if optimizer is not None else {},
        batch_bound=request.bound,
        seed=seed,
        training=training,
    )


__all__ = ["Entry", "Request", "checked_loss", "mode", "run_model", "source_of", "trace"]
