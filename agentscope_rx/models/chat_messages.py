"""Messages as Chat Completions wants them: one encoder, remembered for each exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, Measure
from agentscope_rx.messages import (
    INVALID_ARGUMENTS,
    Base64Source,
    DataBlock,
    HintBlock,
    MetadataKey,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentscope_rx.models.providers import Provider
from agentscope_rx.models.tool_names import wire_name, wire_speaker
from agentscope_rx.wire import json_object, to_json

#: The key of `ToolUseBlock.metadata` for what the provider wants back.
OPAQUE: Final = "opaque"

_SUFFIXES: Final = {"pdf": "application/pdf", "wav": "audio/wav", "mp3": "audio/mpeg", "mp4": "video/mp4"}


@frozen(kw_only=False)
class MessageStyle:
    """In what the messages of providers differ; the fields are those of `Provider`."""

    names: bool
    echo_reasoning: bool
    media_in_results: bool
    merge_user: bool


class WireBytes:
    """The bytes of an exchange, with commas between its messages; a measure, so taken once per exchange."""

    def __init__(self, style: MessageStyle) -> None:
        self._style = style

    def of(self, exchange: Exchange, /) -> bytes:
        """The bytes of one exchange; empty where nothing of it is sent."""
        return encode_messages(exchange.messages, self._style)

    def join(self, parts: Sequence[bytes], /) -> bytes:
        """The bytes of neighbours."""
        return b",".join(filter(None, parts))


def message_style(provider: Provider) -> MessageStyle:
    """The style that a provider wants."""
    return MessageStyle(
        provider.names and not provider.merge_user,  # who speaks is no longer one
        provider.echo_reasoning,
        provider.media_in_results,
        provider.merge_user,
    )


def wire_bytes(provider: Provider) -> Measure[bytes]:
    """The measure for a provider: one per process for each of the few ways in which messages are written."""
    return _wire_bytes(message_style(provider))


@cache
def _wire_bytes(style: MessageStyle) -> WireBytes:
    return WireBytes(style)


def encode_messages(messages: Sequence[Msg], style: MessageStyle) -> bytes:
    """Write neighbouring messages; hints in them follow as a message of the user.

    Hints come last so that they do not part a call from its results.
    """
    return b",".join(map(to_json, written_messages(messages, style)))


def written_messages(messages: Sequence[Msg], style: MessageStyle) -> list[dict[str, object]]:
    """What is written of neighbouring messages, before it is bytes; the content stands last where it is a text."""
    written = [fields for message in messages if (fields := _fields(message, style)) is not None]
    hints = "\n".join(hint.hint for message in messages for hint in message.blocks(HintBlock))
    if hints.strip():
        written.append({"role": "user", "content": hints})
    return written


def _fields(message: Msg, style: MessageStyle) -> dict[str, object] | None:
    match message.role:
        case Role.ASSISTANT:
            return _assistant(message, style)
        case Role.TOOL:
            result = message.tool_result
            return None if result is None else _tool(result, style)
        case Role.USER | Role.SYSTEM:
            # The one System message stands first and is not part of a history; one that an old history still
            # holds would be refused in the middle, so it speaks as the user.
            return _user(message, style)


def _user(message: Msg, style: MessageStyle) -> dict[str, object] | None:
    if message.blocks(DataBlock):
        content: object = [part for block in message.content for part in _user_part(block)]
    elif message.text.strip():
        content = message.text
    else:
        return None
    return {"role": "user", "content": content, **_speaker(message, style)}


def _assistant(message: Msg, style: MessageStyle) -> dict[str, object] | None:
    calls = message.tool_calls
    texts = [block.text if isinstance(block, TextBlock) else _note(block) for block in _shown(message)]
    text = "\n".join(texts)
    if not calls and not text.strip():
        return None
    fields = _state(message)
    fields |= {"role": "assistant", "content": text if text.strip() else None, **_speaker(message, style)}
    if style.echo_reasoning and (calls or message.thinking):
        # Beside calls it must be there even where another model, which thought nothing, made them.
        fields["reasoning_content"] = message.thinking
    if calls:
        fields["tool_calls"] = [_call(call) for call in calls]
    return fields


def _shown(message: Msg) -> Iterator[TextBlock | DataBlock]:
    return (block for block in message.content if isinstance(block, TextBlock | DataBlock))


def _state(message: Msg) -> dict[str, object]:
    """What the provider wants back with the message: metadata of its thinking, and the message's own."""
    fields: dict[str, object] = {}
    for block in message.blocks(ThinkingBlock):
        fields |= block.metadata
    return fields | _mapping(message.metadata.get(MetadataKey.OPAQUE))


def _mapping(value: object) -> dict[str, object]:
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}


def _call(call: ToolUseBlock) -> dict[str, object]:
    function = {"name": wire_name(call.name), "arguments": _arguments(call)}
    return {**_mapping(call.metadata.get(OPAQUE)), "id": call.id, "type": "function", "function": function}


def _arguments(call: ToolUseBlock) -> str:
    """The arguments as the model wrote them, or what servers that read old arguments can still read."""
    if INVALID_ARGUMENTS in call.metadata:
        return "{}"
    if call.content is None:
        return to_json(call.input).decode()
    parsed = json_object(call.content)
    if parsed is None:
        return "{}"
    # Not every server reads what is no strict JSON: NaN, infinities, escaped halves of surrogate pairs.
    doubtful = "NaN" in call.content or "Infinity" in call.content or "\\ud" in call.content.lower()
    return to_json(parsed).decode() if doubtful else call.content


def _tool(result: ToolResultBlock, style: MessageStyle) -> dict[str, object]:
    if style.media_in_results and any(isinstance(block, DataBlock) for block in result.output):
        content: object = [part for block in result.output for part in _user_part(block)]
    else:
        blocks = result.output
        content = "\n".join(block.text if isinstance(block, TextBlock) else _note(block) for block in blocks)
    return {"role": "tool", "tool_call_id": result.id, "content": content}


def _speaker(message: Msg, style: MessageStyle) -> dict[str, object]:
    name = wire_speaker(message.name) if style.names and message.name else ""
    return {"name": name} if name else {}


# -- media --------------------------------------------------------------------------------------------------


def _note(block: DataBlock) -> str:
    """What stands for media where only text is taken."""
    name = f" {block.name}" if block.name else ""
    return f"[{_media_type(block) or 'media'}{name}: not shown here]"


def _user_part(block: object) -> Iterator[dict[str, object]]:
    if isinstance(block, TextBlock):
        if block.text.strip():
            yield {"type": "text", "text": block.text}
    elif isinstance(block, DataBlock):
        yield _media_part(block)


def _media_part(block: DataBlock) -> dict[str, object]:
    source = block.source
    media_type = _media_type(block)
    inline = isinstance(source, Base64Source)
    url = f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64Source) else source.url
    match media_type.partition("/")[0]:
        case "audio":
            sound = "mp3" if media_type in ("audio/mpeg", "audio/mp3") else media_type.rpartition("/")[2]
            data = source.data if isinstance(source, Base64Source) else url
            return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
        case "video":
            return {"type": "video_url", "video_url": {"url": url}}
        case "application" | "text":
            name = block.name or ("file" if inline else url.rpartition("/")[2] or "file")
            return {"type": "file", "file": {"filename": name, "file_data": url}}
        case _:
            return {"type": "image_url", "image_url": {"url": url}}


def _media_type(block: DataBlock) -> str:
    """What the source says, else what the end of its URL says; empty where nothing does, as for most images."""
    source = block.source
    if isinstance(source, Base64Source):
        return source.media_type
    path = source.url.partition("?")[0].partition("#")[0]
    return source.mime_type or _SUFFIXES.get(path.rpartition(".")[2].lower(), "")
