"""What providers say of requests that are too long, and what only sounds like it: bodies as they were reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    """One answer of a provider.

    Attributes:
        row: The row of the table that it is for.
        kind: The kind of error that it is.
        status: The HTTP status; None = it comes inside a stream.
        body: The body, or the data of the event.
        limit: The window or the largest output that can be read from it.
    """

    row: str
    kind: str
    status: int | None
    body: Mapping[str, Any] | str
    limit: int | None = None


def said(row: str, status: int | None, message: str, limit: int | None = None, **fields: Any) -> Said:
    """An overflow in the usual shape."""
    return Said(row, "context_overflow", status, {"error": {"message": message, **fields}}, limit)


def cap(row: str, status: int | None, message: str, limit: int | None = None, **fields: Any) -> Said:
    """An output cap in the usual shape."""
    return Said(row, "output_cap", status, {"error": {"message": message, **fields}}, limit)


def other(row: str, kind: str, status: int | None, message: str, **fields: Any) -> Said:
    """A near-miss in the usual shape."""
    return Said(row, kind, status, {"error": {"message": message, **fields}})


_INVALID = "invalid_request_error"
_LENGTH = "This model's maximum context length is"
_SHORTER = "Please reduce the length of the messages or completion."

OVERFLOW: list[Said] = [
    said(
        "P01",
        400,
        f"{_LENGTH} 4097 tokens. However, you requested 4103 tokens (3103 in the messages, 1000 in the completion). "
        f"{_SHORTER}",
        4097,
        type=_INVALID,
        param="messages",
        code="context_length_exceeded",
    ),
    said("P01", 400, f"{_LENGTH} 16,385 tokens. However, your messages resulted in 20,001 tokens.", 16_385),
    said("P01", 400, "too long", code="context_length_exceeded"),
    said("P01", None, f"{_LENGTH} 8192 tokens. However, you requested 9000", 8192),
    said(
        "P02",
        400,
        f"{_LENGTH} 8192 tokens. However, you requested 8996 tokens (3500 in the messages, 1400 in the functions, "
        f"4096 in the completion). {_SHORTER}",
        8192,
    ),
    said(
        "P03",
        400,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 281344 tokens. "
        "Please reduce the length of the messages.",
        272_000,
        type=_INVALID,
        param="messages",
        code="context_length_exceeded",
    ),
    said("P04", 400, "Input tokens exceed the configured limit of 272,000 tokens.", 272_000, code=None),
    said("P05", 400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
    said("P05", None, "Your input exceeds the context window of this model.", code="context_length_exceeded"),
    said(
        "P06",
        400,
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
        98_304,
        code="invalid_parameter_error",
        type=_INVALID,
        param=None,
    ),
    Said(
        "P07",
        "context_overflow",
        400,
        {"code": "InvalidParameter", "message": "Range of input length should be [1, 6000]", "request_id": "r"},
        6000,
    ),
    said("P08", 400, f"{_LENGTH} 65536 tokens. However, you requested 70100 tokens", 65_536, code=_INVALID),
    Said(
        "P09",
        "context_overflow",
        400,
        {"type": "error", "error": {"type": _INVALID, "message": "prompt is too long: 208310 tokens > 200000 maximum"}},
        200_000,
    ),
    said("P10", 400, "input length and `max_tokens` exceed context limit: 200001 + 8192 > 200000", 200_000),
    said(
        "P11",
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
        1_048_575,
        code=400,
        type="INVALID_ARGUMENT",
    ),
    said(
        "P11", 400, "The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576, code=400
    ),
    said("P12", 400, "input token limit is 1048576", 1_048_576, code=400, type=_INVALID),
    said(
        "P13",
        400,
        f"{_LENGTH} 32768 tokens. However, your request has 33000 input tokens. Please reduce the length of the input "
        "messages. (parameter=input_tokens, value=33000)",
        32_768,
        type="BadRequestError",
    ),
    said(
        "P14",
        400,
        f"{_LENGTH} 131072 tokens. However, you requested 0 output tokens and your prompt contains at least 131073 "
        "input tokens, for a total of at least 131073 tokens.",
        131_072,
        type="BadRequestError",
        param="input_tokens",
        code=400,
    ),
    said("P14", 400, "you requested 512 output tokens and your prompt contains at least 9000 input tokens"),
    said(
        "P15",
        400,
        "You passed 120000 input tokens and requested 16000 output tokens. However, the model's context length is only "
        "131072 tokens",
        131_072,
    ),
    said("P16", 400, "Input length (265330) exceeds model's maximum context length (262144).", 262_144),
    said(
        "P17",
        503,
        "litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: Requested token count exceeds the model's "
        "maximum context length of 202752 tokens. You requested a total of 210000 tokens: 180000 tokens from the input "
        "messages and 30000 tokens for the completion.",
        202_752,
    ),
    said("P18", 400, "litellm.ContextWindowExceededError: litellm.BadRequestError: the provider's own words", code=400),
    said(
        "P19",
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (120000 "
        "of text input, 12000 of tool input, 8000 in the output). Please reduce the length of either one.",
        131_072,
        code=400,
    ),
    said("P20", 400, "The request exceeds the maximum allowed input length of 131,072 tokens", 131_072),
    said(
        "P21",
        400,
        "the request exceeds the available context size. try increasing the context size",
        4096,
        code=400,
        type="exceed_context_size_error",
        n_prompt_tokens=5000,
        n_ctx=4096,
    ),
    said("P21", 400, "long", code=400, type="exceed_context_size_error"),
    said("P21", 500, "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096),
    Said(
        "P22",
        "context_overflow",
        400,
        {
            "error": "Trying to keep the first 6845 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        },
        4096,
    ),
    said("P22", None, "The number of tokens to keep from the initial prompt is greater than the context length."),
    Said("P23", "context_overflow", 400, {"error": "prompt too long; exceeded max context length by 812 tokens"}),
    Said("P26", "context_overflow", 400, {"message": "Input is too long for requested model."}),
    said("P26", None, "ValidationException: Input is too long for requested model."),
    said("P27", None, "Input is too long", code="ModelStreamErrorException"),
    said("P27", None, "ModelStreamErrorException: Input is too long."),
    said("P28", 400, "ValidationException: Input exceeds the max input token limit", type="ValidationException"),
    said("P29", 400, "too many tokens: total tokens exceeds the model's max of 4081. Try a shorter prompt", 4081),
    said("P30", 400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    said("P31", 400, _SHORTER),
    said(
        "P32",
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
    ),
    said("P33", 400, "The input (40000 tokens) is longer than the model's context length (32768 tokens).", 32_768),
    said("P33", 400, "The input (9 tokens) is longer than the model’s context length (8 tokens).", 8),
    said("P34", 400, "invalid params, context window exceeds limit (2013)"),
    said("P35", 400, "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)", 8192),
    said("P36", 400, "prompt token count of 140000 exceeds the limit of 128000", 128_000, code="x"),
    said("P38", None, "the end", code="model_context_window_exceeded"),
    said("P40", 400, "tokens in request more than max tokens allowed"),
    said("P40", 400, "the prompt has 9000 tokens, but the configured context size is 8,192 tokens", 8192),
    # A telling code, or a telling class around it, beside words that only name the window.
    said("P00", 400, f"{_LENGTH} 8192 tokens", 8192, code="context_length_exceeded"),
    said("P00", 503, f"litellm.ContextWindowExceededError: {_LENGTH} 8192 tokens", 8192),
]

NOT_OVERFLOW: list[Said] = [
    Said("N01", "rate_limit", 429, {"message": "Too many tokens, please wait before trying again."}),
    other("N01", "rate_limit", None, "ThrottlingException: Too many tokens, please wait before trying again."),
    other("N01", "rate_limit", 400, "slower", code="ThrottlingException"),
    other("N01", "rate_limit", None, "Rate limit reached on requests"),
    other("N01", "rate_limit", 503, "litellm.RateLimitError: AnthropicException - slower"),
    other("N01", "bad_request", 400, "input token limit is 10000 per minute"),
    other("N01", "bad_request", 400, "Throttling: prompt is too long: 5 tokens > 4 maximum"),
    other("N02", "rate_limit", 429, "You exceeded your current quota. Please retry in 34.1s."),
    other(
        "N03",
        "output_cap",
        400,
        "max_tokens is too large",
        param="max_tokens",
        code="invalid_value",
    ),
    cap(
        "N03",
        400,
        "max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you provided "
        "20480.",
        16_384,
        param="max_tokens",
        code="invalid_value",
    ),
    cap(
        "N04",
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 "
        "tokens and your request has 2423 input tokens (64000 > 64001 - 2423).",
        61_578,
    ),
    cap("N05", 400, f"{_LENGTH} 8192 tokens. However, your request has 9 input tokens.", 8183),
    cap(
        "N05",
        400,
        f"{_LENGTH} 131,072 tokens. However, you requested 131,080 tokens (8 in the messages, 131,072 in the "
        "completion).",
        131_064,
        code="context_length_exceeded",
    ),
    cap(
        "N05",
        None,
        f"{_LENGTH} 8192 tokens. However, you requested 8192 output tokens and your prompt contains at least 9 input "
        "tokens.",
        8183,
    ),
    cap(
        "N05",
        400,
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
        "8201 tokens: 9 tokens from the input messages and 8192 tokens for the completion.",
        8183,
    ),
    cap(
        "N05",
        400,
        "You passed 9 input tokens and requested 100 output tokens. However, the model's context length "
        "is only 100 tokens",
        91,
    ),
    other("N06", "bad_request", 500, "max_tokens must be at least 1, got -160"),
    other("N06", "bad_request", 500, "Expected a value >= 1", code="integer_below_min_value"),
    cap(
        "N07",
        400,
        "This endpoint's maximum context length is 262144 tokens. However, you requested about 1000135 tokens (135 of "
        "text input, 1000000 in the output). Please reduce the length of either one.",
        262_009,
        code=400,
    ),
    cap(
        "N07",
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (5000 of "
        "text input, 2884 of tool input, 131072 in the output).",
        123_188,
        code=400,
    ),
    Said(
        "N08",
        "payload_too_large",
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
    ),
    other("N08", "payload_too_large", None, "too many bytes", type="request_too_large"),
    other("N08", "payload_too_large", None, "Request exceeds the maximum size"),
    Said("N09", "payload_too_large", 413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    Said("N09", "payload_too_large", 413, "payload too large"),
    other("N09", "payload_too_large", None, "Payload Too Large"),
    other(
        "N10",
        "bad_request",
        400,
        "Invalid 'messages[1].content': string too long. Expected a string with maximum "
        "length 1048576, but got a string with length 1100000 instead.",
        code="string_above_max_length",
    ),
    other("N10", "bad_request", None, "string too long. Expected a string with maximum length 1048576"),
    other("N10", "bad_request", None, "too long", code="string_above_max_length"),
    other("N11", "payload_too_large", 400, "String value length (20054016) exceeds the maximum allowed (20000000)"),
    other(
        "N12",
        "bad_request",
        400,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 140 instead.",
        code="array_above_max_length",
    ),
    other("N12", "bad_request", None, "array too long. Expected an array with maximum length 128"),
    other("N12", "bad_request", None, "too long", code="array_above_max_length"),
    other(
        "N13",
        "bad_request",
        None,
        "maximum length 1024",
        code="string_above_max_length",
        param="tools[0].function.description",
    ),
    other("N15", "bad_request", 400, "image dimensions exceed max allowed size: 8000 pixels", type=_INVALID),
    other("N15", "bad_request", None, "messages.4.content.1: image dimensions exceed max allowed size: 8000 pixels"),
    other(
        "N16",
        "bad_request",
        400,
        "Unexpected role 'user' after role 'tool'",
        code="3230",
        type="invalid_request_message_order",
    ),
    other("N16", "bad_request", None, "Unexpected role 'user' after role 'tool'"),
    other("N17", "quota", None, "quota exceeded"),
    other("N17", "quota", 400, "denied", code="Arrearage"),
    cap("N20", 400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens", 8192),
    cap("N21", 400, "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8192),
    cap("N21", 400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    cap(
        "P10",
        400,
        "input length and `max_tokens` exceed context limit: 180089 + 21333 > 200000, decrease input length "
        "or `max_tokens` and try again",
        19_911,
    ),
]

_LIES = "This model's maximum context length is 5 tokens. However, you requested 6 tokens"

#: Bodies that repeat what the user wrote about overflows.
ECHOES: list[Mapping[str, Any] | str | list[Any]] = [
    {"error": {"message": "please explain context_length_exceeded to me"}},
    {"error": {"message": "what does ContextWindowExceededError mean?"}},
    {"error": {"message": "no such model", "param": _LIES, "request": {"messages": [{"content": _LIES}]}}},
    {"error": {"message": "no such model"}, "traceback": _LIES, "input": _LIES},
    {"messages": [{"role": "user", "content": _LIES}]},
    {"error": {"message": f"Invalid content: '{_LIES}' is not a list"}},
    {"error": {"message": f'Invalid content "say \\"{_LIES}\\"" in messages[0]'}},
    {"error": {"message": f"Invalid content “{_LIES}” in messages[0]"}},
    {"error": {"message": f"Invalid content `{_LIES}` in messages[0]"}},
    {"error": {"message": f'Invalid content "{"word " * 20}{_LIES}{" word" * 300}"'}},
    {
        "error": {
            "message": "1 validation error for ChatCompletionRequest\nmessages.0.content\n  Input should be a valid "
            f"list [type=list_type, input_value=Text({_LIES}), input_type=Text]"
        }
    },
    {"error": {"message": f'{{"error": {{"message": "no such model", "input": "{_LIES}"}}}}'}},
    {"error": {"message": "no", "metadata": {"raw": f'{{"message": "no", "prompt": "{_LIES}"}}', "flagged": _LIES}}},
    {"error": {"message": f"litellm.BadRequestError: OpenAIException - {{'message': 'no', 'prompt': \"{_LIES}\"}}"}},
    {"detail": [{"loc": ["body"], "msg": "field required", "input": _LIES, "ctx": {"given": _LIES}}, {"msg": _LIES}]},
    {"detail": [{"type": "missing", "input": {"message": _LIES}}]},
    {"detail": {"msg": "refused", "body": _LIES}},
    [{"error": {"message": "refused"}}, {"error": {"message": _LIES}}],
    f'400 for the request {{"messages": [{{"content": "{_LIES}"}}]}}',
]


def wrapped(words: str) -> list[Any]:
    """The words of a provider, in each of the things that gateways put around them."""
    error: dict[str, Any] = {"error": {"message": words, "code": 400}}
    written = json.dumps(error)
    behind = "litellm.BadRequestError: AnthropicException - "
    aside = "\nReceived Model Group=m\nAvailable Model Group Fallbacks=None"
    return [
        error,
        [error],
        {"error": words},
        {"error": {"message": written, "code": 400}},
        {"error": {"message": json.dumps(json.loads(written), indent=2)}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": written}}},
        {"error": {"message": f"litellm.BadRequestError: OpenAIException - {words}. Received Model Group=m"}},
        {"error": {"message": f"{behind}{written}{aside}", "code": "400"}},
        {"error": {"message": f"{behind}{written.encode()}.{aside}"}},
        {"detail": f"Error code: 400 - {error}"},
        {"detail": [{"msg": words}]},
        {"message": f"BadRequestError: Error code: 400 - {error}"},
        f"'{words}'",
        words,
    ]
