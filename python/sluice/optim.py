# SPDX-License-Identifier: Apache-2.0
"""Optimizers: descriptions of the update that a plan carries, with PyTorch's names, order and defaults."""

from __future__ import annotations

from typing import Any


def _at_least(what: str, name: str, value: float, least: float = 0.0, below: float = float("inf")) -> float:
    if not least <= value < below:
        wanted = f"at least {least:g}" + (f" and below {below:g}" if below != float("inf") else "")
        raise ValueError(f"{what}: {name} is {value}; it must be {wanted}")
    return float(value)


class Optimizer:
    """What the optimizers share: an op of the table and its attributes."""

    _op: str = ""

    def __init__(self, **attrs: Any) -> None:
        self._attrs = attrs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._attrs.items())})"


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum as PyTorch defines it."""

    _op = "sgd"

    def __init__(
        self,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: nesterov needs a momentum above 0 and no dampening")
        super().__init__(
            lr=_at_least("SGD", "lr", lr),
            momentum=_at_least("SGD", "momentum", momentum),
            dampening=float(dampening),
            weight_decay=_at_least("SGD", "weight_decay", weight_decay),
            nesterov=bool(nesterov),
        )


def _adam(
    what: str, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> dict[str, Any]:
    first, second = betas
    return {
        "lr": _at_least(what, "lr", lr),
        "beta1": _at_least(what, "betas[0]", first, below=1.0),
        "beta2": _at_least(what, "betas[1]", second, below=1.0),
        "eps": _at_least(what, "eps", eps),
        "weight_decay": _at_least(what, "weight_decay", weight_decay),
    }


class Adam(Optimizer):
    """Adam; `weight_decay` is added to the gradient."""

    _op = "adam"

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(**_adam("Adam", lr, betas, eps, weight_decay))


class AdamW(Optimizer):
    """Adam with `weight_decay` taken from the parameter itself."""

    _op = "adamw"

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(**_adam("AdamW", lr, betas, eps, weight_decay))


__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
