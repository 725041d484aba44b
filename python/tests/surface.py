# SPDX-License-Identifier: Apache-2.0
"""All names and signatures that users of the package see, as one text.

usage: surface.py --write     writes surface.txt; CHANGELOG.md must then name its hash
"""

import enum
import inspect
import pathlib
import sys
import types
import zlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "surface.txt"
ROOT = HERE.parent.parent

# What a class says of itself beside its public names.
SPECIAL = {
    name: f"__{name}__"
    for name in "call len iter getitem array float int bool index add sub mul truediv pow matmul "
    "radd rsub rmul rtruediv rpow rmatmul eq ne lt le gt ge neg abs invert".split()
}


def signature(value):
    try:
        return str(inspect.signature(value)).replace("sluice.", "sl.")
    except (TypeError, ValueError):
        return "(...)"


def of_class(name, cls):
    yield f"class {name}({', '.join(b.__name__ for b in cls.__mro__[1:-1] if not b.__name__.startswith('_'))})"
    if cls.__init__ is not object.__init__ and not issubclass(cls, BaseException):
        yield f"{name}{signature(cls)}"
    own = [cls, *(c for c in cls.__mro__[1:-1] if c.__name__ == "Methods")]
    for key in sorted({k for c in own for k in vars(c)}):
        if (key.startswith("_") and key not in SPECIAL.values()) or getattr(object, key, None) is getattr(cls, key, 0):
            continue
        if issubclass(cls, BaseException) and key in dir(Exception):
            continue
        value = inspect.getattr_static(cls, key)
        if isinstance(value, property):
            yield f"{name}.{key}: {value.fget.__annotations__.get('return', '')}"
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            yield f"{name}.{key}{signature(getattr(cls, key))}"
        else:
            yield f"{name}.{key}"


def of_module(name, module):
    for key in sorted(module.__all__):
        value = getattr(module, key)
        if isinstance(value, types.ModuleType):
            yield from of_module(f"{name}.{key}", value)
        elif inspect.isclass(value) and not issubclass(value, enum.Enum):
            yield from of_class(f"{name}.{key}", value)
        elif callable(value):
            yield f"{name}.{key}{signature(value)}"
        else:
            yield f"{name}.{key} = {value!r}"


def surface():
    """The text of now."""
    import sluice

    lines = list(of_module("sl", sluice))
    lines += [f"metric {name}" for name in ("accuracy", "loss", "val_accuracy", "val_loss")]
    return "\n".join(lines) + "\n"


def mark(text):
    """What the changelog must hold."""
    return f"python surface {zlib.crc32(text.encode()):08x}"


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    text = surface()
    GOLDEN.write_text(text)
    print(f"say in CHANGELOG.md what changed for users, and put there: {mark(text)}")


if __name__ == "__main__":
    main()
