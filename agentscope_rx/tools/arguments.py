"""What is wrong with the arguments of a call, told so that the model can put it right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from agentscope_rx.errors import RunError
from agentscope_rx.secret_names import without_secrets
from agentscope_rx.tools.plain import plain
from agentscope_rx.tools.texts import clean, cut
from agentscope_rx.wire import from_json, to_json

if TYPE_CHECKING:
    from pydantic import ValidationError

#: How many mistakes one answer lists.
_MOST: Final = 20
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}


class InvalidArguments(RunError):
    """A tool cannot be called with these arguments; never retried. A class of one's own may raise it too.

    Args:
        violations: What is wrong, one `place: what` each.
    """

    def __init__(self, *violations: str) -> None:
        super().__init__("\n".join(f"- {violation}" for violation in violations[:_MOST]))
        self.violations = violations


def unreadable(raw: object) -> str:
    """Say why the arguments that a model wrote are no JSON object, and show them."""
    text = raw if isinstance(raw, str) else str(raw)
    try:
        value = from_json(text)
        why = f"a JSON object was expected, not {_kind(value)}"
    except (ValueError, RecursionError) as error:
        why = f"{error}"
    return clean(f"The arguments are not a JSON object: {why}\nThey were: {cut(text, 1000)}")


def explain(error: ValidationError, known: Sequence[str]) -> InvalidArguments:
    """Tell pydantic's findings in few words.

    Args:
        error: What pydantic found.
        known: The arguments that there are.
    """
    return InvalidArguments(*_explained(error, known))


def _explained(error: ValidationError, known: Sequence[str]) -> Iterator[str]:
    for found in error.errors(include_url=False, include_context=False):
        place = ".".join(map(str, found["loc"])) or "arguments"
        match found["type"]:
            case "extra_forbidden" if len(found["loc"]) == 1:
                yield f"{place}: there is no such argument; there are: {', '.join(known) or 'none'}"
            case "extra_forbidden" | "missing":
                yield f"{place}: {found['msg']}"
            case _:
                yield f"{place}: {found['msg']}, got {_shown(found['input'], place)}"


def violations(schema: Mapping[str, object], value: object, place: str = "") -> Iterator[str]:
    """Compare a value with a JSON schema, as far as models go wrong in practice.

    Types, required and unknown properties, `enum`, `const`, items and alternatives are looked at; formats,
    lengths and references are left to whoever runs the tool.

    Args:
        schema: A JSON schema.
        value: The value.
        place: Where it stands. Default: at the top.

    Examples:
        >>> list(violations({"type": "object", "required": ["city"]}, {}))
        ['city: Field required']
    """
    where = place or "arguments"
    options = _options(schema)
    if options and all(any(violations(option, value, place)) for option in options):
        yield f"{where}: fits none of the alternatives, got {_shown(value, place)}"
    if not _has_type(schema.get("type"), value):
        yield f"{where}: should be {_type_names(schema.get('type'))}, got {_shown(value, place)}"
        return
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, (list, tuple)) and value not in cast("Sequence[object]", allowed):
        yield f"{where}: should be one of {_shown(cast('object', allowed))}, got {_shown(value, place)}"
    if isinstance(value, Mapping):
        yield from _of_object(schema, cast("Mapping[str, object]", value), place)
    elif isinstance(value, (list, tuple)) and isinstance(items := schema.get("items"), Mapping):
        for index, each in enumerate(cast("Sequence[object]", value)):
            yield from violations(cast("Mapping[str, object]", items), each, _below(place, index))


def _of_object(schema: Mapping[str, object], value: Mapping[str, object], place: str) -> Iterator[str]:
    required = _listed(schema.get("required"))
    properties = cast("Mapping[str, object]", found if isinstance(found := schema.get("properties"), Mapping) else {})
    for name in required:
        if name not in value:
            yield f"{_below(place, name)}: Field required"
    for name, each in value.items():
        if isinstance(known := properties.get(name), Mapping):
            if each is not None or name in required:  # null for an optional property: it was left out
                yield from violations(cast("Mapping[str, object]", known), each, _below(place, name))
        elif schema.get("additionalProperties") is False:
            names = ", ".join(properties) or "none"
            yield f"{_below(place, name)}: there is no such argument; there are: {names}"


def _options(schema: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The alternatives; none where one of them is `true`, which everything fits."""
    found = _listed(schema.get("anyOf", schema.get("oneOf")))
    return cast("Sequence[Mapping[str, object]]", found if all(isinstance(each, Mapping) for each in found) else ())


def _listed(value: object) -> Sequence[object]:
    """A list of a schema that somebody else wrote, which may be anything."""
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else ()


def _has_type(wanted: object, value: object) -> bool:
    names = [wanted] if isinstance(wanted, str) else _listed(wanted)
    if not names or any(name not in _TYPES for name in names):
        return True
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True  # 3.0 is an integer in JSON
    return any(isinstance(value, _TYPES[str(name)]) for name in names)


def _type_names(wanted: object) -> str:
    return wanted if isinstance(wanted, str) else " or ".join(map(str, _listed(wanted)))


def _kind(value: object) -> str:
    kinds: Mapping[type, str] = {str: "a string", bool: "a boolean", list: "an array", type(None): "null"}
    return kinds.get(type(value), "a number")


def _below(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _shown(value: object, place: str = "") -> str:
    text = to_json(plain(without_secrets(place.rpartition(".")[2], value))).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"
