"""The body of a Chat Completions request, put together of remembered bytes and joined once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agentscope_rx.models.chat_messages import encode_messages, message_style, wire_bytes
from agentscope_rx.models.merged_users import merged_bytes
from agentscope_rx.models.providers import Provider
from agentscope_rx.models.tool_names import wire_name
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.wire import to_json

_PLAIN_OPTIONS: Final = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "response_format",
)
_TOOL_MODES: Final = frozenset({"auto", "none", "required"})
_NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
_REMEMBERED_TOOLS: Final = 1_024

#: Tools by their identity, each with its bytes; the tool itself keeps its identity from being used again.
_tools: Final[dict[int, tuple[ToolSpec, bytes]]] = {}


def encode(request: ModelRequest, *, model: str, provider: Provider) -> bytes:
    """Write the body of a streamed request.

    Args:
        request: What to ask.
        model: The model's name, as the provider knows it.
        provider: In what this provider differs from others.

    Examples:
        >>> from agentscope_rx.messages import Msg
        >>> from agentscope_rx.models.providers import COMPATIBLE
        >>> request = ModelRequest(call_id="r1", tail=(Msg.user("Hi"),))
        >>> encode(request, model="m", provider=COMPATIBLE)[:50]
        b'{"messages":[{"role":"user","content":"Hi"}],"mode'
    """
    extra = request.options.additional_body
    parts: list[bytes] = [b"{"]
    if "messages" not in extra:
        parts.append(b'"messages":[')
        _extend(parts, _messages(request, provider))
        parts.append(b"],")
    if request.tools and "tools" not in extra:
        parts.append(b'"tools":[')
        _extend(parts, map(_tool, request.tools))
        parts.append(b"],")
    fields = {"model": model, "stream": True, **_options(request, provider), **extra}
    parts.append(to_json(fields)[1:])
    return b"".join(parts)


def _messages(request: ModelRequest, provider: Provider) -> Iterable[bytes]:
    if request.system.strip():
        yield to_json({"role": "system", "content": request.system})
    style = message_style(provider)
    if style.merge_user:
        merged = merged_bytes(style)
        yield merged.join([request.conversation.measure(merged), merged.of_messages(request.tail)]).bytes
        return
    measure = wire_bytes(provider)
    # Leaf by leaf, and not as one measure of the whole, so that the bytes are copied only once.
    for leaf in request.conversation.leaves:
        yield leaf.measure(measure)
    yield encode_messages(request.tail, style)


def _extend(parts: list[bytes], items: Iterable[bytes]) -> None:
    """Append what is not empty, with commas between."""
    first = True
    for item in items:
        if item:
            if not first:
                parts.append(b",")
            parts.append(item)
            first = False


def _tool(tool: ToolSpec) -> bytes:
    known = _tools.get(id(tool))
    if known is not None:
        return known[1]
    function: dict[str, object] = {
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": tool.parameters or _NO_PARAMETERS,
    }
    if tool.strict is not None:
        function["strict"] = tool.strict
    written = to_json({"type": "function", "function": function})
    if len(_tools) >= _REMEMBERED_TOOLS:
        _tools.clear()  # at once, since dropping one by one is not safe among threads
    _tools[id(tool)] = tool, written
    return written


def _options(request: ModelRequest, provider: Provider) -> dict[str, object]:
    options = request.options
    fields = {name: value for name in _PLAIN_OPTIONS if (value := getattr(options, name)) is not None}
    fields |= _output_limit(options, provider)
    fields |= _thinking(options, provider)
    if options.top_k is not None and provider.top_k:
        fields["top_k"] = options.top_k
    if provider.stream_usage and options.additional_body.get("stream") is not False:
        fields["stream_options"] = {"include_usage": True}
    if request.tools:
        if options.tool_choice is not None:
            fields["tool_choice"] = _tool_choice(options.tool_choice)
        if options.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = options.parallel_tool_calls
    return fields


def _output_limit(options: GenerateOptions, provider: Provider) -> dict[str, object]:
    """The limit under the provider's name, whichever of the two was given; its own counts where both were."""
    limits = (options.max_tokens, options.max_completion_tokens)
    own, other = limits if provider.output_limit == "max_tokens" else reversed(limits)
    limit = own if own is not None else other
    return {} if limit is None else {provider.output_limit: limit}


def _thinking(options: GenerateOptions, provider: Provider) -> dict[str, object]:
    budget = options.thinking_budget
    if budget is None or provider.thinking is None:
        return {}
    if provider.thinking == "reasoning":
        return {"reasoning": {"max_tokens": budget} if budget else {"enabled": False}}
    return {"enable_thinking": True, "thinking_budget": budget} if budget else {"enable_thinking": False}


def _tool_choice(choice: str) -> object:
    if choice in _TOOL_MODES:
        return choice
    return {"type": "function", "function": {"name": wire_name(choice)}}
