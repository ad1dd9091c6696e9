"""What is an overflow of the context window, and what is none."""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentscope_rx.errors import (
    BadRequest,
    ContextOverflow,
    InvalidOption,
    OutputCap,
    PayloadTooLarge,
    ProviderError,
    RateLimited,
    ServerFailed,
)
from agentscope_rx.models import overflow, register_overflow_recogniser
from agentscope_rx.models.failures import response_failure, stream_failure
from agentscope_rx.testing.fake_provider import ScriptedReply, failure, stream
from tests.models.answers import calls, chunk, piece, read
from tests.models.asking import BOTH, ask, served
from tests.models.overflow_bodies import ECHOES, NOT_OVERFLOW, OVERFLOW, Said, wrapped

EVERYTHING = [*OVERFLOW, *NOT_OVERFLOW]
#: All rows that were reported; the silent overflows among them give no error.
ROWS = {f"P{number:02}" for number in range(1, 41)} - {"P24", "P25", "P39"}
MISSES = {f"N{number:02}" for number in range(1, 18)} - {"N02", "N14"}
Recogniser: TypeAlias = overflow.OverflowRecogniser
Register: TypeAlias = Callable[[Recogniser], Callable[[], None]]
FULL = "model_context_window_exceeded"


def failed(said: Said) -> ProviderError:
    """The error for one answer of the table."""
    return stream_failure(said.body) if said.status is None else response_failure(said.status, {}, said.body)


def found(error: ProviderError) -> tuple[str, int | None]:
    """What matters of an error: its kind, and the window or the largest output."""
    return error.kind, error.limit if isinstance(error, ContextOverflow | OutputCap) else None


def named(said: Said) -> str:
    return f"{said.row}-{said.status or 'stream'}"


def reply_of(said: Said) -> ScriptedReply:
    if said.status is not None:
        return failure(said.status, said.body)
    assert not isinstance(said.body, str)
    return stream([{"d": {"content": "par"}}, said.body])


@pytest.mark.parametrize("said", EVERYTHING, ids=named)
async def test_every_row_over_http(said: Said) -> None:
    """Each wording that was reported becomes the error that it means, refused or inside a stream."""
    async with served(BOTH[0], reply_of(said)) as (model, provider):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        assert len(provider.requests) == 1
    assert found(caught.value) == (said.kind, said.limit)
    assert caught.value.status == said.status


async def test_the_sdk_sees_the_same() -> None:
    """The model over the SDK classifies alike."""
    chosen = [said for said in EVERYTHING if said.row in ("P06", "P17", "N04", "P27")]
    async with served(BOTH[1], *map(reply_of, chosen)) as (model, _):
        for said in chosen:
            with pytest.raises(ProviderError) as caught:
                await ask(model)
            assert found(caught.value) == (said.kind, said.limit)


@pytest.mark.parametrize("said", OVERFLOW, ids=named)
@pytest.mark.parametrize("status", [400, 413, 422, 500, 503, None])
def test_no_status_hides_an_overflow(said: Said, status: int | None) -> None:
    """An overflow is one with any status, and inside a stream."""
    assert found(failed(replace(said, status=status))) == (said.kind, said.limit)


@pytest.mark.parametrize("said", NOT_OVERFLOW, ids=named)
@pytest.mark.parametrize("status", [400, 413, 422, 429, 500, 503, None])
def test_no_status_makes_an_overflow(said: Said, status: int | None) -> None:
    """A near-miss is no overflow, whatever its status."""
    assert not isinstance(failed(replace(said, status=status)), ContextOverflow)


def test_every_row_has_a_case() -> None:
    """Each row that was reported has an entry and a case, and no entry is without one."""
    entries = cast("list[dict[str, Any]]", json.loads(_file())["entries"])
    covered = [row for entry in entries for row in (entry["id"], *entry.get("also", ()))]
    weak = {entry["id"] for entry in entries if entry.get("weak")}
    assert (ROWS | MISSES) - set(covered) == set()
    assert set(covered) - {said.row for said in EVERYTHING} == weak == {"P37"}
    assert len({entry["id"] for entry in entries}) == len(entries)
    first_overflow = next(at for at, entry in enumerate(entries) if entry.get("kind") == "context_overflow")
    assert all(entry["kind"] != "context_overflow" for entry in entries[:first_overflow])
    assert not [entry["id"] for entry in entries[first_overflow:] if entry["id"][0] == "N"], "exclusions come first"


def _file() -> str:
    return (overflow.files("agentscope_rx.models") / "overflow.json").read_text("utf-8")


def _parts() -> Iterator[tuple[str, str]]:
    for entry in overflow.table():
        for part in ("code", "message"):
            if getattr(entry, part) is not None and not entry.weak:
                yield entry.id, part


@pytest.mark.parametrize(("id", "part"), list(_parts()))
def test_every_entry_is_needed(id: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its code, or without its message, an entry is missed by a case of the table."""
    assert [named(said) for said in EVERYTHING if found(failed(said)) != (said.kind, said.limit)] == []
    without: dict[str, Any] = {part: None}
    reduced = tuple(replace(entry, **without) if entry.id == id else entry for entry in overflow.table())
    monkeypatch.setattr(overflow, "table", lambda: reduced)
    assert [named(said) for said in EVERYTHING if found(failed(said)) != (said.kind, said.limit)]


def test_telling_codes_decide_before_words() -> None:
    """A code of a throttle or of a limit in bytes ends the matter, although the words are those of an overflow."""
    words = "prompt is too long: 5 tokens > 4 maximum"
    kinds = {
        code: response_failure(400, {}, {"error": {"code": code, "message": words}}).kind
        for code in ("rate_limit_exceeded", "insufficient_quota", "string_above_max_length", "request_too_large", "x")
    }
    assert list(kinds.values()) == ["rate_limit", "quota", "bad_request", "payload_too_large", "context_overflow"]


@pytest.mark.parametrize(("status", "kind"), [(401, "authentication"), (402, "quota"), (429, "rate_limit")])
def test_what_was_never_read_is_no_overflow(status: int, kind: str) -> None:
    """A request refused for who asks or how often has not been looked at: words alone make no overflow of it."""
    assert response_failure(status, {}, {"error": {"message": "input token limit is 5"}}).kind == kind


@pytest.mark.parametrize("body", ECHOES)
@pytest.mark.parametrize("status", [400, 413, 422, 500, None])
def test_what_the_user_wrote_decides_nothing(body: Any, status: int | None) -> None:
    """A body that repeats a question about overflows is none, wherever it repeats it."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = stream_failure(data) if status is None else response_failure(status, {}, data)
    assert error.kind in {400: "bad_request", 413: "payload_too_large", 422: "bad_request", 500: "server"}.get(
        status or 0, "stream_error"
    )


@pytest.mark.parametrize("body", wrapped("prompt is too long: 208,310 tokens > 200,000 maximum"))
@pytest.mark.parametrize("status", [400, 500, None])
def test_wrapped_words_are_found(body: Any, status: int | None) -> None:
    """The provider's words are found in what gateways put around them."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = stream_failure(data) if status is None else response_failure(status, {}, data)
    assert found(error) == ("context_overflow", 200_000)


@pytest.mark.parametrize(
    "body",
    [
        "{'a': __import__('os').getcwd()}",
        "{'\\d': 1}",
        "[" * 5_000,
        "b'\\x",
        "{1: {2}}",
        "{[]: 1}",
        "[" + "-" * 9_000 + "1]",
        "{'a': 1}",
        "{'message': '" + "y" * 30_000 + "'}",
    ],
)
def test_python_in_a_message_is_only_read(body: str) -> None:
    """What stands behind a name of an error is read as a literal, never run; what cannot be read stays as it is."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for whole in (f"BadRequestError: {body}", {"error": {"message": f"BadRequestError: {body}"}}):
            error = response_failure(400, {}, whole)
            assert error.kind == "bad_request"
            assert str(error).startswith(f"BadRequestError: {body}"[:900])
    assert warned == []


# -- numbers ------------------------------------------------------------------------------------------------


@given(window=st.integers(1_000, 2_000_000), taken=st.integers(1, 2_000_000), extra=st.integers(1, 10_000))
@example(window=2_000, taken=1_000, extra=1)
def test_numbers_tell_which_part_is_too_long(window: int, taken: int, extra: int) -> None:
    """An input of at most half of the window is never an overflow, a longer one always; the rest is what may be."""
    output = max(1, window - taken + extra)
    message = (
        f"This endpoint's maximum context length is {window:,} tokens. However, you requested about {taken + output} "
        f"tokens ({taken:,} of text input, {output} in the output)."
    )
    error = response_failure(400, {}, {"error": {"message": message}})
    is_cap = taken * 2 <= window
    assert found(error) == (("output_cap", window - taken) if is_cap else ("context_overflow", window))


@pytest.mark.parametrize(
    ("taken", "kind", "limit"),
    [(199_999, "output_cap", 1), (200_000, "context_overflow", 200_000), (250_000, "context_overflow", 200_000)],
)
def test_a_sum_that_only_the_output_makes_too_long(taken: int, kind: str, limit: int) -> None:
    """Where the provider shows the sum, an input that fits alone leaves its room to the output."""
    message = f"input length and `max_tokens` exceed context limit: {taken} + 8192 > 200000"
    assert found(response_failure(400, {}, {"error": {"message": message}})) == (kind, limit)


def test_numbers_that_do_not_add_up_decide_nothing() -> None:
    """A small input with a small output does not make an output cap: something else is counted, too."""
    message = (
        "This model's maximum context length is 100 tokens. However, you requested 130 tokens (10 in the messages, 20 "
        "in the completion)."
    )
    assert found(response_failure(400, {}, {"error": {"message": message}})) == ("context_overflow", 100)


def test_a_cap_without_any_room_is_an_overflow() -> None:
    """A complaint about max_tokens whose input fills the window is an overflow: no lower value would do."""
    message = (
        "max_tokens is too large: 10. This model's maximum context length is 100 tokens and your request has 100 "
        "input tokens"
    )
    assert found(response_failure(400, {}, {"error": {"message": message}})) == ("context_overflow", 100)


#: The words of near-misses that say neither prompt nor input nor window.
WORDS = sorted(
    {
        word
        for said in NOT_OVERFLOW
        if said.row in ("N01", "N03", "N06", "N08", "N09", "N10", "N11", "N12", "N15", "N17", "N20")
        for word in re.findall(r"[\w']+", json.dumps(said.body))
    }
    - {"input", "prompt"}
)


@given(
    st.lists(st.sampled_from([*WORDS, "is", "of", "exceeds", "limit", "tokens", "8192", "131,072", "'", ":", "> 5"]))
)
def test_prose_about_limits_is_no_overflow(words: list[str]) -> None:
    """Tokens, limits and maxima in any order make no overflow without the wording of one."""
    for status in (400, 413, 503, None):
        body = {"error": {"message": " ".join(words)}}
        error = stream_failure(body) if status is None else response_failure(status, {}, body)
        assert not isinstance(error, ContextOverflow)


HOSTILE = [
    "9" * 1_000,
    "9,999" * 200,
    "maximum context length is 1 tokens. however, you requested " * 20,
    "(1 of text input, 1 of tool input, (1 of text input," * 20,
    "'a" * 500,
    "'a " * 333,
    '"\\' * 500,
    "`" * 1_000,
    "a.Error: " * 120,
    "Error" * 200,
    "x" * 999 + "{",
    "max_tokens " * 90,
]


@pytest.mark.parametrize("message", HOSTILE)
@pytest.mark.parametrize(
    "before", ["", "This endpoint's maximum context length is 1 tokens. However, you requested about "]
)
def test_no_message_takes_long(message: str, before: str) -> None:
    """No message makes a pattern go back and forth without end."""
    overflow.table()
    started = time.process_time()
    response_failure(400, {}, {"error": {"message": before + message}})
    assert time.process_time() - started < 1


# -- weak signs, finish reasons -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "is_weak"),
    [
        (400, "", True),
        (413, " \n", True),
        (400, {}, True),
        (400, "400 status code (no body)", True),
        (413, {"error": {"message": "413 status code (no body)"}}, True),
        (400, {"error": {"code": "no_such_model"}}, False),
        (400, "bad", False),
        (404, "", False),
        (413, "<html><h1>413 Request Entity Too Large</h1></html>", False),
        (500, "", False),
        (429, "", False),
    ],
)
def test_weak_signs(status: int, body: Any, is_weak: bool) -> None:
    """A refusal without a word may be an overflow, which is left to who knows the size of the request."""
    error = response_failure(status, {}, body)
    assert not isinstance(error, ContextOverflow)
    assert error.may_be_overflow is is_weak
    if is_weak:
        assert isinstance(error, BadRequest | PayloadTooLarge)


async def test_weak_sign_over_http() -> None:
    """A status 413 without a body is a payload that may be an overflow."""
    async with served(BOTH[0], failure(413, "")) as (model, _):
        with pytest.raises(PayloadTooLarge) as caught:
            await ask(model)
    assert caught.value.may_be_overflow


@pytest.mark.parametrize("model_class", BOTH)
@pytest.mark.parametrize("delta", [{}, {"content": ""}, {"content": " \n"}, {"reasoning_content": "hm"}])
async def test_full_window_without_an_answer(model_class: Any, delta: Mapping[str, Any]) -> None:
    """A finish reason that says that the window is full is an overflow where nothing was answered."""
    async with served(model_class, stream([{"d": delta}, {"d": {}, "f": FULL}])) as (model, _):
        with pytest.raises(ContextOverflow, match=FULL) as caught:
            await ask(model)
    assert (caught.value.provider_code, caught.value.limit) == (FULL, None)


@pytest.mark.parametrize(
    "data",
    [
        [chunk({"content": "half"}), chunk({}, FULL)],
        [chunk({"content": "half"}, FULL)],
        [chunk({"refusal": "no"}, FULL)],
        [calls(piece(0, "a", name="f", arguments="{}")), chunk({}, FULL)],
        [calls(piece(0, "a", arguments="{}")), chunk({}, FULL)],
        [calls(piece(0, "a", arguments="{}")), chunk({"tool_calls": [piece(0, name="f")]}, FULL)],
    ],
)
def test_full_window_after_an_answer(data: list[bytes]) -> None:
    """An answer that was cut stays an answer, with its finish reason."""
    answer = read(*data)
    assert answer.text or answer.calls
    assert answer.finish_reason == FULL


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "rate_limit", "tool_calls"])
def test_other_finish_reasons_are_no_errors(reason: str) -> None:
    """An empty answer with any other finish reason is an empty answer."""
    assert read(chunk({}, reason)).finish_reason == reason


# -- recognisers --------------------------------------------------------------------------------------------


@pytest.fixture
def register() -> Iterator[Register]:
    """Register recognisers that are gone after the test."""
    removals: list[Callable[[], None]] = []

    def registering(recogniser: Recogniser) -> Callable[[], None]:
        removals.append(register_overflow_recogniser(recogniser))
        return removals[-1]

    yield registering
    for remove in removals:
        remove()


def always(kind: type[ProviderError] | None) -> Recogniser:
    """One that knows but one answer."""
    return lambda _status, _code, _message: kind


REFUSED: dict[str, Any] = {"error": {"message": "no room: input length (9) ", "code": "ACME-17"}}


def test_a_recogniser_is_asked_before_the_table(register: Register) -> None:
    """It gets status, code and message, decides, and is gone when removed, twice if need be."""
    asked: list[tuple[int | None, str, str]] = []

    def acme(status: int | None, code: str, message: str) -> type[ProviderError] | None:
        asked.append((status, code, message))
        return ContextOverflow if code == "ACME-17" else ServerFailed if "prompt is too long" in message else None

    remove = register(acme)
    assert isinstance(response_failure(400, {}, REFUSED), ContextOverflow)
    assert isinstance(stream_failure(REFUSED), ContextOverflow)
    known = {"error": {"message": "prompt is too long: 5 tokens > 4 maximum", "type": "t"}}
    assert isinstance(response_failure(400, {}, known), ServerFailed)
    assert isinstance(response_failure(429, {}, ""), RateLimited)
    assert asked == [
        (400, "ACME-17", "no room: input length (9)"),
        (None, "ACME-17", "no room: input length (9)"),
        (400, "t", known["error"]["message"]),
        (429, "", ""),
    ]
    remove()
    remove()
    assert isinstance(response_failure(400, {}, REFUSED), BadRequest)
    assert isinstance(response_failure(400, {}, known), ContextOverflow)


def test_the_first_recogniser_with_an_opinion_counts(register: Register) -> None:
    """They are asked in the order of their registration; one registered twice goes one registration at a time."""
    register(always(None))
    first, _, second = register(always(OutputCap)), register(always(ContextOverflow)), register(always(OutputCap))
    assert isinstance(response_failure(400, {}, REFUSED), OutputCap)
    first()
    assert isinstance(response_failure(400, {}, REFUSED), ContextOverflow)
    second()
    assert isinstance(response_failure(400, {}, REFUSED), ContextOverflow)


def test_numbers_go_with_a_recognised_error(register: Register) -> None:
    """The window and the largest output are read from the message; the class is the recogniser's."""
    remove = register(always(ContextOverflow))
    message = "max_tokens is too large: 20480. This model supports at most 16384 completion tokens"
    assert found(response_failure(400, {}, {"error": {"message": message}})) == ("context_overflow", None)
    message_of_window = "maximum context length is 100 tokens. However, your request has 5 input tokens"
    assert found(response_failure(400, {}, {"error": {"message": message_of_window}})) == ("context_overflow", 100)
    remove()
    register(always(OutputCap))
    assert found(response_failure(400, {}, {"error": {"message": message}})) == ("output_cap", 16_384)


@pytest.mark.parametrize("given", [ValueError("hush"), "ContextOverflow", dict, ContextOverflow("an instance")])
def test_a_broken_recogniser_is_passed_over(
    given: object, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    """One that raises, or gives what is no class of ours, is logged without its text, and the next one is asked."""

    def broken(*_: object) -> Any:
        if isinstance(given, ValueError):
            raise given
        return given

    register(broken)
    register(always(ContextOverflow))
    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        assert isinstance(response_failure(400, {}, REFUSED), ContextOverflow)
    assert [record.message for record in caplog.records] == [
        "overflow_recogniser_failed" if isinstance(given, ValueError) else "overflow_recogniser_refused"
    ]
    assert "hush" not in caplog.text


def test_a_recogniser_sees_no_key(register: Register) -> None:
    """What a provider repeats of a key is masked in the message."""
    seen: list[str] = []

    def listening(status: int | None, code: str, message: str) -> None:
        seen.append(message)

    register(listening)
    response_failure(400, {}, "the key is hush", hide=["hush"])
    assert seen == ["the key is ***"]


def test_a_recogniser_can_be_called() -> None:
    """What cannot be called is refused where it is registered."""
    with pytest.raises(InvalidOption, match="recogniser=3"):
        register_overflow_recogniser(cast("Any", 3))
