"""Case O38: a provider that takes no user message behind a tool result, its profile, and the sources of the case."""

from __future__ import annotations

import json
from itertools import pairwise

from agentscope_rx import ContextBlock, ContextRequest
from agentscope_rx.models.providers import Provider
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply, from_case
from tests.cases import case

STRICT = Provider(name="strict", base_url="http://127.0.0.1", needs_key=False, merge_user=True)


def no_user_after_a_result(request: RecordedRequest, number: int) -> ScriptedReply:
    """The rule of the case, and then its replies."""
    the = case("O38")
    roles = [message["role"] for message in request.messages]
    if ("tool", "user") in pairwise(roles):
        return fake.failure(400, json.loads(the["provider_rule"].removeprefix("400 ").partition(" when ")[0]))
    return from_case(the["model"][number - 1])


async def sources(request: ContextRequest) -> list[ContextBlock]:
    """The blocks of the case."""
    ((_, blocks),) = case("O38")["config"]["context_source"]
    return [ContextBlock(id=id, text=text, kind=kind) for kind, id, text in blocks]
