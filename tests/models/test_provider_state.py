"""What a provider wants back: gathered over the pieces of an answer."""

from __future__ import annotations

from tests.models.answers import chunk, piece, read

STOP = chunk({}, "stop")


def test_state_of_a_message_comes_whole_with_the_last_chunk() -> None:
    """Text is appended, items of one index and type are one, what is encrypted stays as it came."""
    secret = {"type": "reasoning.encrypted", "data": "xyz", "index": 1}
    answer = read(
        chunk({"reasoning": "Let", "reasoning_details": [{"type": "reasoning.text", "text": "Let", "index": 0}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": " me", "index": 0, "signature": None}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "Et8B", "index": 0}, secret, secret]}),
        chunk({"reasoning_opaque": "ab", "thought_signature": "s1", "x_signature": "s"}),
        chunk({"reasoning_opaque": "cd", "extra_content": {"a": 1}, "unknown": 1, "system_fingerprint": "f"}),
        chunk({"extra_content": {"b": 2}}, "stop"),
    )
    assert answer.opaque == {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Let me", "index": 0, "signature": "Et8B"},
            secret,
            secret,
        ],
        "reasoning_opaque": "abcd",
        "thought_signature": "s1",
        "x_signature": "s",
        "extra_content": {"a": 1, "b": 2},
    }
    assert answer.thinking == "Let"


def test_state_of_a_call_stays_with_the_call() -> None:
    """Fields of a call that the library does not know are kept as they are, later ones too."""
    signature = {"google": {"thought_signature": "abc"}}
    first = {**piece(0, "c1", name="f", arguments="{"), "type": "function", "extra_content": signature, "none": None}
    later = {**piece(0, arguments="}"), "late": [1]}
    (call,) = read(chunk({"tool_calls": [first]}), chunk({"tool_calls": [later]}), STOP).calls
    assert call.opaque == {"extra_content": signature, "late": [1]}
    assert call.arguments == "{}"
