"""Providers by name, and models by `provider:model`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import field
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from agentscope_rx.errors import ConfigError, InvalidOption, MissingApiKey, UnknownProvider
from agentscope_rx.frozen import frozen
from agentscope_rx.requests import Model


@frozen
class Provider:
    """Where a provider is, and in what its Chat Completions differ from those of others.

    Args:
        name: What stands before the colon in `provider:model`, and what telemetry shows.
        base_url: Its address, up to what comes before `/chat/completions`.
        base_url_variable: The environment variable that overrules `base_url`; without a path, `/v1` is added.
        key_variable: The environment variable that holds the key; None = it knows no keys.
        needs_key: Whether it answers nobody without a key.
        output_limit: Under which name it takes the limit of the answer.
        stream_usage: Whether it takes `stream_options`, which ask for the usage of a streamed answer.
        names: Whether messages may say who speaks.
        top_k: Whether it takes `top_k`; elsewhere that option is left out.
        thinking: How it takes `thinking_budget`: as DashScope does (`enable_thinking`), as OpenRouter does
            (`reasoning`), or not at all, in which case that option is left out.
        echo_reasoning: Whether it wants its thinking back in `reasoning_content`.
        media_in_results: Whether tool results may hold images; elsewhere a note stands in their place.
        merge_user: Whether it refuses a message of the user right after another one or after a tool result, as
            Mistral does. What the user says is then written into the message before it.
        json_schema: Whether it holds its models to a JSON schema that `response_format` gives.

    Examples:
        >>> Provider(name="acme", base_url="https://llm.acme.example/v1", key_variable="ACME_API_KEY").names
        False
    """

    name: str
    base_url: str
    base_url_variable: str | None = None
    key_variable: str | None = None
    needs_key: bool = True
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    names: bool = False
    top_k: bool = False
    thinking: Literal["enable_thinking", "reasoning"] | None = None
    echo_reasoning: bool = False
    media_in_results: bool = False
    merge_user: bool = False
    json_schema: bool = False

    def __repr__(self) -> str:
        return f"Provider(name={self.name!r}, base_url={shown_url(self.base_url)!r})"


@frozen
class Endpoint:
    """A provider with the address and the key of one model; address and key are in no `repr`."""

    provider: Provider
    base_url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)


OPENAI: Final = Provider(
    name="openai",
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    output_limit="max_completion_tokens",
    names=True,
    json_schema=True,
)
#: What speaks OpenAI's language at an address that belongs to no known provider: the least common denominator.
COMPATIBLE: Final = Provider(name="compatible", base_url="", key_variable="OPENAI_API_KEY", needs_key=False)

_BUILT_IN: Final = (
    OPENAI,
    Provider(
        name="dashscope",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        base_url_variable="DASHSCOPE_BASE_URL",
        key_variable="DASHSCOPE_API_KEY",
        top_k=True,
        thinking="enable_thinking",
    ),
    Provider(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        base_url_variable="DEEPSEEK_BASE_URL",
        key_variable="DEEPSEEK_API_KEY",
        names=True,
        echo_reasoning=True,
    ),
    Provider(
        name="ollama",
        base_url="http://127.0.0.1:11434/v1",
        base_url_variable="OLLAMA_BASE_URL",
        needs_key=False,
        json_schema=True,
    ),
    Provider(
        name="vllm",
        base_url="http://127.0.0.1:8000/v1",
        base_url_variable="VLLM_BASE_URL",
        key_variable="VLLM_API_KEY",
        needs_key=False,
        top_k=True,
        json_schema=True,
    ),
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        base_url_variable="OPENROUTER_BASE_URL",
        key_variable="OPENROUTER_API_KEY",
        names=True,
        top_k=True,
        thinking="reasoning",
    ),
)

_LOCAL: Final = re.compile(r"localhost|[\d.]+|.*:.*")

ModelFactory: TypeAlias = Callable[[str], Model]
"""Makes a model of the whole string that its pattern matched."""

_lock: Final = threading.Lock()
_providers: Final[dict[str, Provider]] = {provider.name: provider for provider in _BUILT_IN}
_factories: Final[list[tuple[re.Pattern[str], ModelFactory]]] = []


def register_provider(provider: Provider) -> None:
    """Make a provider known under its name, in the place of one that has it already.

    Args:
        provider: The provider; its name is compared without regard to case.

    Raises:
        InvalidOption: The name is blank or holds a colon.
    """
    name = provider.name.strip().lower()
    if not name or ":" in name:
        raise InvalidOption("provider.name", provider.name, "it is not blank and holds no colon")
    with _lock:
        _providers[name] = provider


def register_model(pattern: str, factory: ModelFactory) -> None:
    """Make models of your own resolvable; of several patterns that match, the one registered last counts.

    Args:
        pattern: A regular expression that matches the whole model string.
        factory: Makes the model; it is asked before any provider.

    Raises:
        InvalidOption: The pattern is no regular expression.

    Examples:
        >>> register_model("acme:.*", lambda name: resolve_model("ollama:" + name.removeprefix("acme:")))
        >>> resolve_model("acme:small").name
        'small'
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidOption("pattern", pattern, f"it is a regular expression ({error})") from error
    with _lock:
        _factories.append((compiled, factory))


def provider_names() -> tuple[str, ...]:
    """The names of all known providers, in alphabetical order."""
    with _lock:
        return tuple(sorted(_providers))


def resolve_model(model: str) -> Model:
    """Make the model that a string like `openai:gpt-5-mini` names.

    It is an `OpenAIChatModel` where the openai package is installed, and an `HttpxChatModel` elsewhere. Each call
    makes a new one.

    Args:
        model: `provider:model`, or what a registered pattern matches; blanks around it do not count.

    Raises:
        UnknownProvider: It is blank, or nothing known matches it.
        MissingApiKey: The provider needs a key and its environment variable is not set.
        InvalidOption: A registered factory failed; its error is chained.
    """
    wanted = model.strip()
    with _lock:
        factories = tuple(reversed(_factories))
    for pattern, factory in factories:
        if pattern.fullmatch(wanted):
            return _made(factory, wanted)
    name, _, rest = wanted.partition(":")
    provider = _known(name)
    if provider is None or not rest.strip():
        raise UnknownProvider(
            f"{model!r} names no known model: write provider:model with one of {', '.join(provider_names())}, "
            "or make yours known with register_provider or register_model"
        )
    return _class_of_models()(rest.strip(), provider=provider)


def find_endpoint(provider: Provider | str | None, base_url: str | None, api_key: str | None) -> Endpoint:
    """Find out where a model is and which key it takes, from what was given and from the environment.

    Args:
        provider: The provider or its name; None = the one that `base_url` belongs to, else openai.
        base_url: The address; None = the provider's.
        api_key: The key; None = the provider's environment variable.

    Raises:
        UnknownProvider: No provider has this name.
        InvalidOption: The address is no HTTP URL, or the key holds what no header can.
        MissingApiKey: There is no key, and the provider's own address needs one.
    """
    if provider is None:
        base_url = base_url or _from_environment(OPENAI)
        chosen = _provider_at(base_url) if base_url else OPENAI
    else:
        chosen = provider if isinstance(provider, Provider) else _called(provider)
    url = (base_url or _from_environment(chosen) or chosen.base_url).strip().rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidOption("base_url", shown_url(url), "it is an http or https URL")
    key = _clean_key(api_key if api_key is not None else os.environ.get(chosen.key_variable or "", ""))
    if not key and chosen.needs_key and base_url is None:
        raise MissingApiKey(f"{chosen.name} needs a key: set {chosen.key_variable} or give api_key=")
    return Endpoint(provider=chosen, base_url=url, api_key=key or None)


def shown_url(url: str) -> str:
    """The URL without user, password and query, where secrets may be."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path


# -- small steps --------------------------------------------------------------------------------------------


def _known(name: str) -> Provider | None:
    with _lock:
        return _providers.get(name.strip().lower())


def _called(name: str) -> Provider:
    known = _known(name)
    if known is None:
        raise UnknownProvider(f"no provider is called {name!r}; known are {', '.join(provider_names())}")
    return known


def _provider_at(url: str) -> Provider:
    host = urlsplit(url.strip()).hostname or ""
    with _lock:
        return next((each for each in _providers.values() if _is_host_of(host, each)), COMPATIBLE)


def _is_host_of(host: str, provider: Provider) -> bool:
    """Whether a host is the provider's, or one of its regions, which differ in the first label."""
    own = urlsplit(provider.base_url).hostname or ""
    if _LOCAL.fullmatch(host):
        return False  # anything may listen there
    return host == own or (own.count(".") > 1 and host.endswith(own[own.index(".") :]))


def _from_environment(provider: Provider) -> str | None:
    written = os.environ.get(provider.base_url_variable or "", "").strip()
    if not written:
        return None
    return written if urlsplit(written).path.strip("/") else f"{written.rstrip('/')}/v1"


def _clean_key(key: str) -> str:
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidOption("api_key", key, "it holds printable ASCII characters without blanks")
    return key


def _made(factory: ModelFactory, wanted: str) -> Model:
    try:
        return factory(wanted)
    except ConfigError:
        raise
    except Exception as error:
        raise InvalidOption("model", wanted, "the factory registered for it failed") from error


def _class_of_models() -> Callable[..., Model]:
    if find_spec("openai") is not None:
        from agentscope_rx.models.openai_chat import OpenAIChatModel

        return OpenAIChatModel
    from agentscope_rx.models.http_chat import HttpxChatModel

    return HttpxChatModel
