"""The tools with which a model looks at earlier conversations of its user: never at those of anybody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from agentscope_rx.errors import InvalidIdentifier, SessionError
from agentscope_rx.messages import (
    HintBlock,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session.reading import Said, said_in
from agentscope_rx.session.searching import sessions_to_read, text_of
from agentscope_rx.stores import SessionKey, SessionStore
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.matching import query_of
from agentscope_rx.tools.session_tool import SessionTool
from agentscope_rx.tools.tool import FunctionTool
from agentscope_rx.wire import to_json

_LAST: Final = 20
_MOST_MESSAGES: Final = 200
_RESULTS: Final = 10
_MOST_RESULTS: Final = 50
_MOST_SESSIONS: Final = 1_000
_TEXT_CHARS: Final = 2_000
_PAGE: Final = 100


class PastSessions:
    """The sessions of one user, for a model to look at.

    Args:
        store: Where they are kept.
        own: The session that asks; what is seen belongs to its user.
        agent_id: The id of the agent that asks, as users know it.
        key_of: The key of a session of another agent.
    """

    def __init__(
        self, store: SessionStore, own: SessionKey, *, agent_id: str, key_of: Callable[[str], SessionKey]
    ) -> None:
        self._store, self._own, self._agent_id, self._key_of = store, own, agent_id, key_of

    async def session_list(self, agentId: str) -> str:
        """List the conversations that this user has had with an agent.

        Args:
            agentId: The agent.
        """
        keys = await self._keys(self._agent(agentId))
        found = [{"userId": key.user_id, "agentId": key.agent_id, "sessionId": key.session_id} for key in keys]
        return _written(found, _cut_sessions(keys))

    async def session_history(self, agentId: str, sessionId: str, lastN: int = _LAST) -> str:
        """Read the newest messages of a conversation word for word, those too that were summarised since.

        Args:
            agentId: The agent.
            sessionId: The conversation.
            lastN: How many messages, the newest; at most 200.
        """
        if lastN < 1:
            raise InvalidArguments(f"lastN: at least 1, got {lastN}")
        try:
            key = SessionKey(agent_id=self._agent(agentId), user_id=self._own.user_id, session_id=sessionId)
        except InvalidIdentifier as error:
            raise InvalidArguments(f"sessionId: {error}") from None
        said = await said_in(self._store, key)
        if said is None:
            raise InvalidArguments(f"sessionId: this user has no session {sessionId!r} with the agent {agentId!r}")
        shown = said.messages[-min(lastN, _MOST_MESSAGES) :]
        answer = {
            "asOfSeq": said.as_of_seq,
            "totalMessages": len(said.messages),
            "messages": [_shown(message) for message in shown],
        }
        cut = len(shown) < min(lastN, len(said.messages))
        return _written(answer, f"only {_MOST_MESSAGES} messages are shown at once" if cut else "")

    async def session_search(
        self, query: str, agentId: str | None = None, maxResults: int = _RESULTS, matchMode: str = "phrase"
    ) -> str:
        """Search the earlier conversations of this user: what was said, tools that were called, and their results.

        Upper and lower case are the same.

        Args:
            query: What to look for.
            agentId: Only conversations with this agent; all agents if left out.
            maxResults: How many messages at most; 10 if left out, at most 50.
            matchMode: `phrase`: the query as it is. `all`: all of its words in one message. `any`: one of them.
        """
        wanted = query_of(query, matchMode)
        agent_id = None if agentId is None else self._agent(agentId)
        keys = await self._keys(agent_id)
        reading = await sessions_to_read(self._store, keys, wanted, user_id=self._own.user_id, agent_id=agent_id)
        limit = min(maxResults if maxResults > 0 else _RESULTS, _MOST_RESULTS)
        found, unread = list[dict[str, Any]](), 0
        for key in reading:
            try:
                said = await said_in(self._store, key) or Said(as_of_seq=0, messages=())
            except SessionError:
                unread += 1  # one that is damaged hides no other
                continue
            for message in said.messages:
                if not wanted.finds(text_of(message)):
                    continue
                if len(found) == limit:
                    return _written(found, f"only the first {limit} messages are shown: ask more precisely")
                found.append(
                    {
                        "agentId": key.agent_id,
                        "sessionId": key.session_id,
                        "asOfSeq": said.as_of_seq,
                        "message": _shown(message),
                    }
                )
        notes = [_cut_sessions(keys), f"{unread} sessions could not be read" if unread else ""]
        return _written(found, "; ".join(filter(None, notes)))

    def _agent(self, agent_id: str) -> str:
        """The agent as keys name it."""
        if not agent_id.strip():
            raise InvalidArguments("agentId: must not be blank")
        if agent_id in (self._agent_id, self._own.agent_id):
            return self._own.agent_id
        try:
            return self._key_of(agent_id).agent_id
        except InvalidIdentifier as error:
            raise InvalidArguments(f"agentId: {error}") from None

    async def _keys(self, agent_id: str | None) -> Sequence[SessionKey]:
        """The sessions of this user, by agent and session."""
        keys, after = list[SessionKey](), None
        while len(keys) < _MOST_SESSIONS:
            page = await self._store.list(agent_id=agent_id, user_id=self._own.user_id, after=after, limit=_PAGE)
            keys += page
            if len(page) < _PAGE:
                break
            after = page[-1]
        return sorted(keys, key=lambda key: (key.agent_id, key.session_id))


_TOOLS: Final[tuple[FunctionTool[Any, Any], ...]] = (
    tool(PastSessions.session_list, read_only=True),
    tool(PastSessions.session_history, read_only=True),
    tool(PastSessions.session_search, read_only=True),
)


def session_tools(
    store: SessionStore, agent_id: str, key_of: Callable[[RuntimeContext, str], SessionKey]
) -> list[SessionTool]:
    """The tools with which a model looks at the earlier conversations of the user who calls.

    Args:
        store: Where sessions are kept.
        agent_id: The id of the agent that has the tools.
        key_of: The key of a context's session with an agent.
    """

    def of(context: ToolContext) -> PastSessions:
        caller = context.runtime_context

        def other(agent: str) -> SessionKey:
            return key_of(caller, agent)

        return PastSessions(store, key_of(caller, agent_id), agent_id=agent_id, key_of=other)

    return [SessionTool(each, of) for each in _TOOLS]


# -- what is shown ------------------------------------------------------------------------------------------


def _shown(message: Msg) -> dict[str, Any]:
    """A message without what only providers and programs want; long texts are cut."""
    shown = {"id": message.id, "role": message.role.value, "name": message.name, "timestamp": message.timestamp}
    blocks = [each for block in message.content if (each := _block(block)) is not None]
    return {name: value for name, value in shown.items() if value} | {"content": blocks}


def _block(block: object) -> dict[str, Any] | None:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": _fitting(text)}
        case ToolUseBlock(id=id, name=name, input=input):
            return {"type": "tool_use", "id": id, "name": name, "input": _fitting_values(input)}
        case ToolResultBlock(id=id, name=name):
            return {"type": "tool_result", "id": id, "name": name, "output": _fitting(block.text)}
        case HintBlock(hint=hint):
            return {"type": "hint", "hint": _fitting(hint)}
        case _:
            return None


def _fitting_values(value: object) -> object:
    if isinstance(value, str):
        return _fitting(value)
    if isinstance(value, Mapping):
        return {name: _fitting_values(each) for name, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_fitting_values(each) for each in cast("Sequence[object]", value)]
    return value


def _fitting(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}… ({len(text) - _TEXT_CHARS:,} characters more)"


def _cut_sessions(keys: Sequence[SessionKey]) -> str:
    return f"only {_MOST_SESSIONS:,} sessions were looked at" if len(keys) >= _MOST_SESSIONS else ""


def _written(value: object, note: str) -> str:
    text = to_json(value).decode()
    return f"{text}\nNote: {note}." if note else text
