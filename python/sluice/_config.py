# SPDX-License-Identifier: Apache-2.0
"""Configs from what a user may pass: a path, a dict, or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from . import _sluice


def load(config: Any) -> _sluice.Config:
    """The checked config of a TOML file or of a dict with the same keys; None is one device."""
    if config is None:
        return _sluice.default_config()
    if isinstance(config, str | os.PathLike):
        return _sluice.load_config(os.fspath(config))
    if isinstance(config, Mapping):
        return _sluice.parse_config(toml_text(config), "config")
    raise TypeError(f"config must be a path or a dict, not {type(config).__name__}")


def toml_text(config: Mapping[str, Any]) -> str:
    """A dict as TOML: tables of the top level as sections, all that lies deeper inline."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in config.items() if not isinstance(v, Mapping)]
    sections = []
    for name, table in config.items():
        if isinstance(table, Mapping):
            sections += [f"[{_key(name)}]", *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join([*plain, *sections]) + "\n"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"config: the key {key!r} is no string")
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    raise TypeError(f"config: {value!r} ({type(value).__name__}) is no TOML value")
