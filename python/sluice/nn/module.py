# SPDX-License-Identifier: Apache-2.0
"""Modules and parameters, with PyTorch's names."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _sluice
from .._context import context, using
from .._tensor import Tensor, as_tensor, evaluate

if TYPE_CHECKING:
    import numpy as np


class Cell:
    """Where a parameter's value lives: here, in a running job, or nowhere yet (it is drawn when it is needed).

    It refers to no tensor and to no module strongly, so an expression may hold it without a cycle.
    """

    __slots__ = ("_session", "_session_name", "_value", "init", "key", "owner", "writes")

    def __init__(self, value: Any, init: Callable[[str], Tensor] | None) -> None:
        self._value = value
        self.init = init
        self.owner: Callable[[], Module | None] = lambda: None
        self.key = "parameter"
        self.writes = 0  # by the user; each job takes over what it has not seen
        self._session: Any = None
        self._session_name = ""

    @property
    def is_undrawn(self) -> bool:
        """Whether no value exists yet."""
        return self._value is None and self._session is None

    @property
    def name(self) -> str:
        """The full dotted name, from the outermost module."""
        owner = self.owner()
        path = owner._path() if owner is not None else ""
        return f"{path}.{self.key}" if path else self.key

    def read(self) -> np.ndarray[Any, Any]:
        """The value now."""
        if self._session is not None:
            return self._session.variable(self._session_name)  # type: ignore[no-any-return]
        if self._value is None:
            self.draw_all([self])
        return self._value  # type: ignore[no-any-return]

    def write(self, value: Any) -> None:
        """A value given by the user; jobs take it over before their next step."""
        self._value, self._session = value, None
        self.writes += 1

    def link(self, session: Any, name: str) -> None:
        """From now on the value is the variable `name` of a job's session."""
        self._value, self._session, self._session_name = None, session, name

    @staticmethod
    def draw_all(cells: Iterable[Cell]) -> None:
        """Draws initial values that are asked for before any job has drawn them, by the seed 0."""
        todo = [cell for cell in cells if cell.is_undrawn]
        for cell, value in zip(todo, draw([(c.name, c) for c in todo], seed=0), strict=True):
            cell._value = value


def draw(cells: list[tuple[str, Cell]], seed: int) -> list[Any]:
    """Initial values by counter: they depend on the seed and on the parameter's full name alone."""
    if not cells:
        return []
    with using(names=None, scope="", stepping=False, keep=0, seed=seed, step=0):
        tensors = [cell.init(name) for name, cell in cells if cell.init is not None]
        evaluate(tensors)
    return [tensor.numpy() for tensor in tensors]


class Parameter(Tensor):
    """A tensor that a module owns and that training changes.

    data: the initial value.
    requires_grad: whether an optimizer updates it.
    """

    __slots__ = ("_cell", "requires_grad")

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        value = as_tensor(data)
        self._set(value._expr.dtype, value.shape, Cell(value.numpy(), None), requires_grad)

    @classmethod
    def _drawn(cls, shape: tuple[int, ...], init: Callable[[str], Tensor], dtype: str = "float32") -> Parameter:
        """A parameter whose initial value is `init(full name)`, evaluated when it is needed."""
        parameter = cls.__new__(cls)
        parameter._set(dtype, shape, Cell(None, init), True)
        return parameter

    def _set(self, dtype: str, shape: tuple[int, ...], cell: Cell, requires_grad: bool) -> None:
        Tensor.__init__(self, _sluice.Expr.variable(dtype, shape, cell))
        self._cell = cell
        self.requires_grad = requires_grad

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value now, as a read-only NumPy array."""
        return self._cell.read()

    def __repr__(self) -> str:
        return f"Parameter({Tensor.__repr__(self)[len('Tensor(') :]}"


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` did not find, and what it had no place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """A part of a model: parameters and other modules, as attributes, and `forward`.

    Names are dotted attribute names: "layers.0.weight".
    """

    training: bool = True

    def __init__(self) -> None:
        self.__dict__["_parameters"] = {}
        self.__dict__["_modules"] = {}
        self.__dict__["_parent"] = None  # a weak reference, once another module holds this one
        self.__dict__["_name"] = ""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = {} if context.names is None else context.names
        with using(scope=self._path(), names=names):
            return self.forward(*args, **kwargs)

    def _path(self) -> str:
        parts: list[str] = []
        module: Module | None = self
        while module is not None and module is not context.root:
            parent = module._parent() if module._parent is not None else None
            if parent is not None:
                parts.append(module._name)
            module = parent
        return ".".join(reversed(parts))

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__.get("_parameters")
        if held is None:
            if isinstance(value, Parameter | Module):
                raise AttributeError(f"call super().__init__() before you set '{name}'")
        else:
            self._forget(name)
            if isinstance(value, Parameter):
                held[name] = value
                if value._cell.owner() is None:
                    value._cell.owner, value._cell.key = weakref.ref(self), name
                return
            if isinstance(value, Module):
                self._modules[name] = value
                if value._parent is None or value._parent() is None:
                    value.__dict__["_parent"], value.__dict__["_name"] = weakref.ref(self), name
                return
        object.__setattr__(self, name, value)

    def _forget(self, name: str) -> None:
        self._parameters.pop(name, None)
        self._modules.pop(name, None)
        self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_modules"):
            held = self.__dict__.get(table)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        if name not in self._parameters and name not in self._modules and name not in self.__dict__:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        self._forget(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._modules]

    # ---- what it holds ----------------------------------------------------------------------------------------------

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their dotted names, each once."""
        seen: set[int] = set()

        def walk(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield prefix, module
            for name, child in module._modules.items():
                yield from walk(child, f"{prefix}.{name}" if prefix else name)

        return walk(self, "")

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names; a tied one once, under its first name."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, parameter in module._parameters.items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{prefix}.{name}" if prefix else name, parameter

    def parameters(self) -> Iterator[Parameter]:
        """All parameters."""
        return (parameter for _, parameter in self.named_parameters())

    def train(self, mode: bool = True) -> Module:
        """Sets `training` here and below: whether dropout drops."""
        for module in self.modules():
            module.__dict__["training"] = bool(mode)
        return self

    def eval(self) -> Module:
        """The same as `train(False)`."""
        return self.train(False)

    # ---- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The values of all parameters by name, as they are now."""
        named = list(self.named_parameters())
        Cell.draw_all(parameter._cell for _, parameter in named)
        return {name: as_tensor(parameter.numpy()) for name, parameter in named}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Sets parameters by name. With `strict` every name must match; shapes always must."""
        named = dict(self.named_parameters())
        keys, values = match_state(
            {name: (p.shape, p._expr.dtype) for name, p in named.items()}, state_dict, strict, type(self).__name__
        )
        for name, value in values.items():
            named[name]._cell.write(value)
        return keys

    def __repr__(self) -> str:
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        inside = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({inside})"
        return f"{type(self).__name__}({inside}\n  " + "\n  ".join(lines) + "\n)"

    def extra_repr(self) -> str:
        """What `repr` shows of this module's own settings."""
        return ""


def match_state(
    types: Mapping[str, tuple[Any, str]], state: Mapping[str, Any], strict: bool, what: str
) -> tuple[IncompatibleKeys, dict[str, Any]]:
    """The values of `state` that fit `types`, as NumPy arrays of the right dtype. All problems are told at once."""
    import numpy as np

    keys = IncompatibleKeys([n for n in types if n not in state], [n for n in state if n not in types])
    problems = []
    if strict and keys.missing_keys:
        problems.append("missing: " + ", ".join(keys.missing_keys))
    if strict and keys.unexpected_keys:
        problems.append("unexpected: " + ", ".join(keys.unexpected_keys))
    values = {}
    for name, (shape, dtype) in types.items():
        if name in state:
            value = np.asarray(state[name])
            if value.shape != tuple(shape):
                problems.append(f"'{name}' is {list(value.shape)}, not {list(shape)}")
            values[name] = np.ascontiguousarray(value.astype(dtype)).reshape(value.shape)
    if problems:
        error = KeyError if strict and (keys.missing_keys or keys.unexpected_keys) else ValueError
        raise error(f"{what} cannot take this state: " + "; ".join(problems))
    return keys, values
