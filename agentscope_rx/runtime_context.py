"""For whom a call is made, and what the application hands along with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TypeVar, overload

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import NOTHING

T = TypeVar("T")


@frozen
class RuntimeContext:
    """User, session, and things that tools and sources may ask for; the model never sees any of it.

    Args:
        user_id: Whose session it is; None = nobody's in particular.
        session_id: Which conversation; None = the agent's default one.
        attributes: Things by name; they are in no `repr`, since keys may be among them.
        values: Things by type, for `get(SomeClass)`; in no `repr` either.

    Examples:
        >>> ctx = RuntimeContext(user_id="alice", session_id="change-42", values=(3.5,))
        >>> ctx.get(float), ctx.get("tenant")
        (3.5, None)
    """

    user_id: str | None = None
    session_id: str | None = None
    attributes: Mapping[str, object] = field(default_factory=lambda: NOTHING, repr=False)
    values: tuple[object, ...] = field(default=(), repr=False)

    @overload
    def get(self, key: str, /) -> object | None: ...
    @overload
    def get(self, key: type[T], /) -> T | None: ...
    def get(self, key: str | type[T], /) -> object | None:
        """Look a thing up by name, or by type: exactly that type first, else the newest of a subclass."""
        if isinstance(key, str):
            return self.attributes.get(key)
        exact = [value for value in self.values if type(value) is key]
        return next(reversed(exact or [value for value in self.values if isinstance(value, key)]), None)

    def with_(
        self,
        *values: object,
        user_id: str | None = None,
        session_id: str | None = None,
        **attributes: object,
    ) -> RuntimeContext:
        """The same context with further things; None as an attribute removes it."""
        merged = {**self.attributes, **attributes}
        return replace(
            self,
            user_id=user_id if user_id is not None else self.user_id,
            session_id=session_id if session_id is not None else self.session_id,
            attributes={name: value for name, value in merged.items() if value is not None},
            values=(*self.values, *values),
        )
