"""Compares values with JSON schemas (draft 2020-12), by the library `jsonschema`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from agentscope_rx.errors import InvalidOption, MissingExtra

#: Gets a value, gives what is wrong with it, one `place: what` each.
Check: TypeAlias = Callable[[object], Sequence[str]]


def checker(option: str, schema: Mapping[str, object]) -> Check:
    """Make a check of a schema; nothing is ever fetched for it.

    Args:
        option: What the schema was given as, for the error.
        schema: The schema.

    Raises:
        InvalidOption: It is no schema.
        MissingExtra: The library is not installed.
    """
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from referencing import Registry
        from referencing.exceptions import Unresolvable
    except ImportError:
        raise MissingExtra("a check by JSON schema", "schema") from None
    validator_class = cast("Any", Draft202012Validator)
    try:
        validator_class.check_schema(schema)
    except SchemaError as error:
        raise InvalidOption(option, schema, f"no JSON schema: {error.message}") from error
    # Without a registry of ours a `$ref` to the network would be followed.
    validator: Any = validator_class(schema, registry=Registry[Any]())

    def check(value: object) -> Sequence[str]:
        try:
            return [f"{_place(error)}: {error.message:.200}" for error in validator.iter_errors(value)]
        except Unresolvable as error:
            raise InvalidOption(option, schema, f"a reference in it leads nowhere: {error}") from error

    return check


def _place(error: Any) -> str:
    return ".".join(map(str, error.absolute_path)) or "the whole"
