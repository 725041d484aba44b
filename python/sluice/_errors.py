# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, beside Python's own ValueError, TypeError, IndexError, KeyError and OSError."""

from . import _sluice


class Error(RuntimeError):
    """The running world failed.

    place: (file, line) of what caused it.
    next: what to do.
    """

    place: tuple[str, int] = ("", 0)
    next: str = ""


class ConfigError(ValueError):
    """A wrong config.

    place: (file, line) of the wrong value.
    next: what to do.
    """

    place: tuple[str, int] = ("", 0)
    next: str = ""


Error.__module__ = ConfigError.__module__ = "sluice"
_sluice.use_errors(Error, ConfigError)


def config_error(message: str, file: str, advice: str) -> ConfigError:
    """An error in a config, as the config's own reader makes them."""
    error = ConfigError(f"{file}: {message}\n  next: {advice}")
    error.place, error.next = (file, 0), advice
    return error
