"""Which error a provider's failure becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.errors import ContextOverflow, ProviderError
from agentscope_rx.models.failures import response_failure, stream_failure

#: Kind, status and body, as providers answered.
TABLE: list[tuple[str, int, Any]] = [
    ("rate_limit", 429, {"message": "ThrottlingException: Too many tokens, please wait before trying again."}),
    (
        "rate_limit",
        429,
        {
            "error": {
                "type": "tokens",
                "code": "rate_limit_exceeded",
                "message": "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000.",
            }
        },
    ),
    (
        "quota",
        429,
        {
            "error": {
                "type": "insufficient_quota",
                "code": "insufficient_quota",
                "message": "You exceeded your current quota",
            }
        },
    ),
    (
        "payload_too_large",
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
    ),
    ("payload_too_large", 413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    (
        "output_cap",
        400,
        {
            "error": {
                "type": "invalid_request_error",
                "param": "max_tokens",
                "code": "invalid_value",
                "message": "max_tokens is too large: 20480. This model supports at most 16384 completion tokens",
            }
        },
    ),
    (
        "output_cap",
        400,
        {
            "error": {
                "type": "BadRequestError",
                "code": 400,
                "message": "'max_completion_tokens' is too large: 64000. This model's maximum context length is "
                "64001 tokens and your request has 2423 input tokens",
            }
        },
    ),
    ("output_cap", 400, {"error": {"message": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"}}),
    ("output_cap", 400, {"error": {"message": "max_tokens: 100000 > 8192, which is the maximum allowed"}}),
    ("bad_request", 400, {"error": {"message": "max_tokens must be at least 1, got -160"}}),
    ("context_overflow", 400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
    ("context_overflow", 400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "long"}}),
    ("context_overflow", 503, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
    ("bad_request", 400, {"error": {"message": "please explain context_length_exceeded to me"}}),
    ("rate_limit", 429, {}),
    ("rate_limit", 429, ""),
    ("rate_limit", 413, {"error": {"code": "rate_limit_exceeded", "message": "Request too large: tokens per minute"}}),
    ("rate_limit", 429, {"error": {"message": "You exceeded your current quota. Please retry in 34.1s."}}),
    ("rate_limit", 429, {"error": {"code": "Throttling.AllocationQuota", "message": "Allocated quota exceeded"}}),
    ("quota", 402, {"error": {"message": "Insufficient Balance"}}),
    ("quota", 429, {"error": {"message": "You exceeded your current quota, check your billing details"}}),
    ("quota", 400, {"code": "Arrearage", "message": "Access denied"}),
    ("quota", 403, {"error": {"code": "AllocationQuota.FreeTierOnly", "message": "free tier only"}}),
    ("authentication", 401, {"error": {"message": "bad key"}}),
    ("authentication", 403, "<html>Forbidden</html>"),
    ("authentication", 400, {"error": {"code": "invalid_api_key", "message": "bad key"}}),
    ("bad_request", 404, {"error": {"message": "no such model"}}),
    ("bad_request", 422, {"detail": [{"loc": ["body"], "msg": "field required", "input": "quota"}]}),
    ("bad_request", 400, {"error": {"code": "string_above_max_length", "message": "string too long"}}),
    ("bad_request", 307, ""),
    ("timeout", 408, ""),
    ("timeout", 504, "<html>Gateway Timeout</html>"),
    ("timeout", 524, ""),
    ("server", 409, {"error": {"message": "conflict"}}),
    ("server", 500, {"error": {"message": "oops"}}),
    ("server", 503, "down"),
    ("server", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
]


@pytest.mark.parametrize(("kind", "status", "body"), TABLE)
def test_kind(kind: str, status: int, body: Any) -> None:
    """Each failure becomes the error of its kind, with its status."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = response_failure(status, {}, data)
    assert (error.kind, error.status) == (kind, status)
    assert str(error).endswith(f"(HTTP {status})")
    assert type(error) is type(response_failure(status, {}, body))


@pytest.mark.parametrize(
    ("body", "text", "code"),
    [
        ({"error": {"message": "a", "code": "c", "type": "t"}}, "a", "c"),
        ({"error": {"message": "a", "code": None, "type": "t"}}, "a", "t"),
        ({"error": {"message": "a", "code": 400}}, "a", "400"),
        ({"error": "a"}, "a", None),
        ({"message": "a", "code": "InvalidParameter"}, "a", "InvalidParameter"),
        ({"detail": "a"}, "a", None),
        ({"detail": [{"msg": "a", "input": "secret question"}]}, "a", None),
        ([{"error": {"message": "a", "code": 1}}], "a", "1"),
        ({"error": {"message": '{"error": {"message": "a", "code": "c"}}', "code": 400}}, "a", "c"),
        ('"{\\"error\\": {\\"message\\": \\"a\\"}}"', '"{\\"error\\": {\\"message\\": \\"a\\"}}"', None),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 400,
                    "metadata": {"raw": '{"error":{"message":"a","code":"c"}}', "provider_name": "P"},
                }
            },
            "a",
            "c",
        ),
        (
            {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "a"}}},
            "a",
            "400",
        ),
        ("<html><style>p {}</style><h1>502 Bad\nGateway</h1><hr>nginx</html>", "502 Bad Gateway nginx", None),
        ("", "Bad Request", None),
        ({}, "Bad Request", None),
        (b"\xff\xfe", "\ufffd\ufffd", None),
    ],
)
def test_what_was_said(body: Any, text: str, code: str | None) -> None:
    """The innermost message and its code are found in each of the usual wrappings."""
    error = response_failure(400, {}, body)
    assert (str(error), error.provider_code) == (f"{text} (HTTP 400)", code)


def test_long_messages_are_shortened() -> None:
    """Neither a page nor a long text is carried along as a whole."""
    assert len(str(response_failure(500, {}, "<html>" + "word " * 100_000))) < 300
    assert len(str(response_failure(500, {}, "word " * 100_000))) < 1_100


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9000", 8192),
        ("Input tokens exceed the configured limit of 272000 tokens", 272_000),
        ("too long", None),
    ],
)
def test_limit_of_an_overflow(message: str, limit: int | None) -> None:
    """The window is on the error where the provider names it, in words or as a number."""
    error = response_failure(400, {}, {"error": {"code": "context_length_exceeded", "message": message}})
    assert isinstance(error, ContextOverflow)
    assert error.limit == limit
    named = {"error": {"type": "exceed_context_size_error", "message": message, "n_ctx": 4096}}
    error = response_failure(400, {}, named)
    assert isinstance(error, ContextOverflow)
    assert error.limit == 4096


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-2"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:09 GMT", "date": DATE}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": DATE}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds and dates are understood; a date counts from the date of the answer."""
    assert response_failure(429, headers, b"").retry_after == seconds


@pytest.mark.parametrize("text", ["Incorrect API key provided: sk-abcDEF123456789.", "got Bearer abc.def.ghi,"])
def test_what_looks_like_a_key_is_not_shown(text: str) -> None:
    """What looks like a key is masked, whether it is ours or not; so is a key that we know."""
    shown = str(response_failure(401, {}, {"error": {"message": text}}))
    assert "abc" not in shown
    assert "***" in shown
    assert str(response_failure(401, {}, "the key is hush", hide=["hush"])) == "the key is *** (HTTP 401)"


def test_number_as_code_in_a_stream_decides_like_a_status() -> None:
    """A code that is an HTTP status decides, but what would be a failed server is a failed stream."""
    kinds = {code: stream_failure({"error": {"message": "x", "code": code}}).kind for code in (400, 401, 429, 502, 504)}
    assert kinds == {
        400: "bad_request",
        401: "authentication",
        429: "rate_limit",
        502: "stream_error",
        504: "stream_error",
    }
    assert stream_failure({"error": {"message": "x", "code": 502}}).status is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "metadata", "raw", "detail", "n_ctx"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.one_of(JSON, st.binary(max_size=30), JSON.map(json.dumps)), st.integers(300, 599))
def test_any_body_gives_an_error_of_ours(body: object, status: int) -> None:
    """No body breaks the classification."""
    assert isinstance(response_failure(status, {}, body), ProviderError)
    assert isinstance(stream_failure(body), ProviderError)
