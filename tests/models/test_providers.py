"""Providers, keys, addresses, and models by their strings."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from agentscope_rx.errors import InvalidOption, MissingApiKey, MissingExtra, UnknownProvider
from agentscope_rx.models import (
    HttpxChatModel,
    OpenAIChatModel,
    Provider,
    provider_names,
    providers,
    register_model,
    register_provider,
    resolve_model,
)
from agentscope_rx.models.providers import COMPATIBLE, find_endpoint, shown_url
from agentscope_rx.requests import Model

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("OPENAI", "DASHSCOPE", "DEEPSEEK", "OLLAMA", "VLLM", "OPENROUTER", "ACME")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key of this machine is seen, and what a test registers is gone after it."""
    for name in KEYS:
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    known, factories = dict(providers._providers), list(providers._factories)  # pyright: ignore[reportPrivateUsage]
    yield
    providers._providers.clear()  # pyright: ignore[reportPrivateUsage]
    providers._providers.update(known)  # pyright: ignore[reportPrivateUsage]
    providers._factories[:] = factories  # pyright: ignore[reportPrivateUsage]


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make packages look as if they were not installed."""
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in packages else find(name, package)

    for module in ("providers", "http_chat", "openai_chat"):
        monkeypatch.setattr(f"agentscope_rx.models.{module}.find_spec", found)
    for package in packages:
        monkeypatch.delitem(sys.modules, package, raising=False)


@pytest.mark.parametrize(
    ("text", "name", "provider"),
    [
        ("openai:gpt-5-mini", "gpt-5-mini", "openai"),
        ("  dashscope : qwen-plus ", "qwen-plus", "dashscope"),
        ("DeepSeek:deepseek-chat", "deepseek-chat", "deepseek"),
        ("openrouter:anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5", "openrouter"),
        ("ollama:qwen3:8b", "qwen3:8b", "ollama"),
        ("vllm:Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "vllm"),
    ],
)
def test_model_strings(monkeypatch: pytest.MonkeyPatch, text: str, name: str, provider: str) -> None:
    """A string names provider and model; only the first colon parts them, blanks and case do not count."""
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "k")
    model: Model = resolve_model(text)
    assert isinstance(model, OpenAIChatModel)
    assert (model.name, model.provider.name) == (name, provider)
    assert resolve_model(text) is not model


def test_without_the_openai_package_models_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where openai is not installed, strings give the class that does without."""
    without(monkeypatch, "openai")
    assert type(resolve_model("ollama:x")) is HttpxChatModel
    with pytest.raises(MissingExtra, match=re.escape("agentscope-rx[openai]")):
        OpenAIChatModel("x", provider="ollama")


def test_without_any_http_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither httpx2 nor httpx is installed, the error says what to install; httpx alone is enough."""
    without(monkeypatch, "httpx2", "httpx")
    with pytest.raises(MissingExtra, match=re.escape("agentscope-rx[httpx]")):
        HttpxChatModel("x", provider="ollama")
    assert HttpxChatModel("x", provider="ollama", http_client=object()).name == "x"


@pytest.mark.parametrize("text", ["", "  ", ":", "gpt-5", "openai:", "openai: ", ":gpt-5", "nobody:x"])
def test_unknown_models(text: str) -> None:
    """What names no model is an error that lists the providers and says how to make another known."""
    with pytest.raises(UnknownProvider) as caught:
        resolve_model(text)
    assert all(name in str(caught.value) for name in (*provider_names(), "register_provider", "register_model"))


@pytest.mark.parametrize("name", ["openai", "dashscope", "deepseek", "openrouter"])
def test_missing_key(name: str) -> None:
    """A provider that needs a key says which variable to set."""
    with pytest.raises(MissingApiKey, match=f"{name.upper()}_API_KEY"):
        resolve_model(f"{name}:m")


def test_local_providers_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama and vLLM are found by their variables, to which /v1 is added where they have no path."""
    assert find_endpoint("ollama", None, None).base_url == "http://127.0.0.1:11434/v1"
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://box:11434/")
    monkeypatch.setenv("VLLM_BASE_URL", "http://box:8000/serve/v1/")
    assert find_endpoint("ollama", None, None).base_url == "http://box:11434/v1"
    assert find_endpoint("vllm", None, None).base_url == "http://box:8000/serve/v1"
    assert find_endpoint("vllm", "http://other/", None).base_url == "http://other"


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "dashscope"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://notopenrouter.ai/api/v1", "compatible"),
        ("http://127.0.0.1:11434/v1", "compatible"),
        ("http://localhost:8000/v1", "compatible"),
        ("http://[::1]:8000/v1", "compatible"),
    ],
)
def test_provider_of_an_address(base_url: str, provider: str) -> None:
    """Without a provider the address decides; an unknown one gets the least common denominator, without a key."""
    assert find_endpoint(None, base_url, "k").provider.name == provider
    assert find_endpoint("deepseek", base_url, "k").provider.name == "deepseek"


def test_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_BASE_URL counts where no provider and no address are given."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://box:1/v1")
    endpoint = find_endpoint(None, None, None)
    assert (endpoint.provider, endpoint.base_url, endpoint.api_key) == (COMPATIBLE, "http://box:1/v1", None)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert find_endpoint("openai", None, None).base_url == "http://box:1/v1"


def test_given_key_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A given key wins over the environment; blanks and line ends around it are dropped."""
    monkeypatch.setenv("OPENAI_API_KEY", "from-env\n")
    assert find_endpoint("openai", None, None).api_key == "from-env"
    assert find_endpoint("openai", None, " given ").api_key == "given"
    with pytest.raises(MissingApiKey):
        find_endpoint("openai", None, "")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ümlaut", "bell\x07"])
def test_unusable_key_is_not_shown(key: str) -> None:
    """A key that no header can hold is refused at once, and not repeated."""
    with pytest.raises(InvalidOption) as caught:
        find_endpoint("openai", None, key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("base_url", ["ftp://x/v1", "api.openai.com", "http://", "file:///etc"])
def test_unusable_address(base_url: str) -> None:
    """An address that is no HTTP URL is refused where it is configured."""
    with pytest.raises(InvalidOption, match="base_url"):
        HttpxChatModel("m", base_url=base_url)


@pytest.mark.parametrize("model_class", [HttpxChatModel, OpenAIChatModel])
def test_repr_shows_no_secret(model_class: type[HttpxChatModel] | type[OpenAIChatModel]) -> None:
    """Neither key nor password nor query of the address are shown."""
    model = model_class("m", base_url="https://user:hush@host:1/v1?key=hush", api_key="hush")
    assert repr(model) == f"{model_class.__name__}('m', provider='compatible', base_url='https://host:1/v1')"
    assert "hush" not in repr(find_endpoint(None, "https://host/v1", "hush"))
    assert shown_url("https://user:hush@host/v1?key=hush") == "https://host/v1"


def test_models_are_equal_only_to_themselves() -> None:
    """Two models with equal arguments are two models."""
    one, other = (HttpxChatModel("m", provider="ollama") for _ in range(2))
    assert one != other
    assert len({one, other}) == 2


def test_facts_about_a_model() -> None:
    """Name, window and output limit are what was given; nonsense is refused."""
    model = HttpxChatModel(" m ", provider="ollama", context_window=4096, max_output_tokens=512)
    assert (model.name, model.context_window, model.max_output_tokens) == ("m", 4096, 512)
    with pytest.raises(InvalidOption, match="name"):
        HttpxChatModel(" ", provider="ollama")
    with pytest.raises(InvalidOption, match="context_window"):
        OpenAIChatModel("m", provider="ollama", context_window=0)
    with pytest.raises(InvalidOption, match="max_output_tokens"):
        OpenAIChatModel("m", provider="ollama", max_output_tokens=-1)
    with pytest.raises(UnknownProvider, match="nobody"):
        HttpxChatModel("m", provider="nobody")


def test_own_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered provider is known by its name and by its address, and may replace a built-in one."""
    acme = Provider(name="Acme", base_url="https://llm.acme.co.example/v1", key_variable="ACME_API_KEY")
    register_provider(acme)
    monkeypatch.setenv("ACME_API_KEY", "k")
    model = resolve_model("acme:small")
    assert isinstance(model, OpenAIChatModel)
    assert model.provider is acme
    assert find_endpoint(None, "https://eu.acme.co.example/v1", None).provider is acme
    assert find_endpoint(None, "https://other.co.example/v1", None).provider is COMPATIBLE
    with pytest.raises(InvalidOption):
        register_provider(Provider(name="a:b", base_url=""))


def test_own_models() -> None:
    """A pattern matches the whole string; the one registered last is asked first, before any provider."""
    first, second = (HttpxChatModel(name, provider="ollama") for name in ("first", "second"))
    register_model("acme:.*", lambda _: first)
    assert resolve_model("acme:x") is first
    register_model("acme:special|openai:.*", lambda _: second)
    assert resolve_model(" acme:special ") is second
    assert resolve_model("acme:specials") is first
    assert resolve_model("openai:gpt-5") is second


def test_factory_that_fails() -> None:
    """An error of a factory is chained; a configuration error of ours passes as it is."""

    def broken(name: str) -> Model:
        raise LookupError(name)

    register_model("acme:.*", broken)
    with pytest.raises(InvalidOption) as caught:
        resolve_model("acme:x")
    assert isinstance(caught.value.__cause__, LookupError)
    register_model("acme:.*", lambda _: resolve_model("nobody:x"))
    with pytest.raises(UnknownProvider):
        resolve_model("acme:x")
    with pytest.raises(InvalidOption, match="pattern"):
        register_model("(", broken)


def test_import_is_light() -> None:
    """Importing the package and making models loads neither an HTTP client nor an SDK."""
    code = (
        "import json, sys; from agentscope_rx.models import *; resolve_model('ollama:x');"
        "HttpxChatModel('x', provider='ollama'); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"openai", "httpx", "httpx2", "anyio"}.isdisjoint(json.loads(done.stdout))
