"""Frozen values with slots, cheap to define and cheap to make.

`@frozen` does what `@dataclass(frozen=True, slots=True, kw_only=True)` does. Defining a class takes a fifth of the
time, which counts when a program starts and imports a hundred of them; making an instance takes half of it, which
counts for every piece of an answer. Everything of `dataclasses` works on the outcome: `fields`, `replace`, `field`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class one of frozen values.

    Args:
        cls: The class, with annotated fields.
        kw_only: Whether its fields are given by name only.

    Examples:
        >>> @frozen
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(x=1), Point(x=1) == Point(x=1, y=0)
        (Point(x=1, y=0), True)
    """

    def decorated(plain: type[T]) -> type[T]:
        made: Any = dataclass(slots=True, kw_only=kw_only, init=False, repr=False, eq=False)(plain)
        for name, method in _METHODS.items():
            if name not in plain.__dict__:
                setattr(made, name, method)
        made.__init__ = _init_of(made, kw_only)
        return cast("type[T]", made)

    return decorated if cls is None else decorated(cls)


def _init_of(cls: Any, kw_only: bool) -> Callable[..., None]:
    """An `__init__` that writes the slots directly: the class refuses to be written to in any other way."""
    names: dict[str, Any] = {"__factory": MISSING}
    parameters: list[str] = []
    body: list[str] = []
    for each in fields(cls):
        if not each.init:
            continue  # `__post_init__` fills it
        slot, default = f"__set_{each.name}", f"__default_{each.name}"
        names[slot] = getattr(cls, each.name).__set__
        given = each.name
        if each.default is not MISSING:
            names[default] = each.default
            parameters.append(f"{each.name}={default}")
        elif each.default_factory is not MISSING:
            names[default] = each.default_factory
            parameters.append(f"{each.name}=__factory")
            given = f"{default}() if {each.name} is __factory else {each.name}"
        else:
            parameters.append(each.name)
        body.append(f"    {slot}(self, {given})")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    star = "*, " if kw_only and parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(body) or "    pass")
    exec(source, names)  # noqa: S102 - as `dataclasses` does; the names are those of the class's own fields
    init = cast("Callable[..., None]", names["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


# -- what all values share ----------------------------------------------------------------------------------


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _key(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, each.name) for each in fields(self) if each.compare)


def _eq(self: Any, other: object) -> bool:
    if other is self:
        return True
    return _key(self) == _key(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_key(self))


def _refuse_set(self: Any, name: str, _: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, content in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, content)


_METHODS: dict[str, Any] = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}
