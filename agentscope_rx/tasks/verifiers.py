"""Who checks evidence: each looks at one settled action, and finds one thing out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, cast

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import TextBlock, ToolResultState
from agentscope_rx.task_state import VerificationOutcome
from agentscope_rx.tasks.observation import ActionStatus, Evidence
from agentscope_rx.tools.execution_details import ExecutionOutcome
from agentscope_rx.tools.json_schema import checker
from agentscope_rx.wire import from_json, to_json

_LONGEST_SCHEMA: Final = 65_536
_LONGEST_RESULT: Final = 262_144
_LONGEST_NAME: Final = 128
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"})
_LONGEST_REASON: Final = 500


@frozen(kw_only=False)
class Verdict:
    """What a verifier has found, and why."""

    outcome: VerificationOutcome
    reason: str


class Verifier(Protocol):
    """Checks evidence. It changes nothing, and runs in a thread."""

    @property
    def id(self) -> str:
        """Which check it is, with all that it depends on; up to 200 characters."""
        ...

    def verify(self, evidence: Evidence, /) -> Verdict:
        """Look at the evidence."""
        ...


class JsonResultSchemaVerifier:
    """Checks that a tool's result is a JSON value of a certain form.

    Args:
        schema: A JSON schema (draft 2020-12) without references, up to 65,536 characters.

    Raises:
        InvalidOption: The schema is empty, too long, holds references, or is none.
        MissingExtra: The extra `schema` is not installed.

    Examples:
        >>> JsonResultSchemaVerifier({"type": "object"}).id[:24]
        'json-schema-v1:80e5d98ab'
    """

    def __init__(self, schema: Mapping[str, object]) -> None:
        written = to_json(schema)
        if not schema or len(written) > _LONGEST_SCHEMA:
            raise InvalidOption("schema", written[:80], f"neither empty nor above {_LONGEST_SCHEMA:,} characters")
        if found := next((key for key in _keys(schema) if key in _REFERENCES), None):
            raise InvalidOption("schema", found, "a schema that stands for itself, without references")
        self._check = checker("schema", schema)
        self.id = f"json-schema-v1:{hashlib.sha256(written).hexdigest()}"

    def verify(self, evidence: Evidence, /) -> Verdict:
        """PASSED for a result of the form, FAILED for another one, UNKNOWN where there is no whole result."""
        details, output = evidence.details, evidence.result.output
        block = output[0] if len(output) == 1 else None
        whole = details is None or (details.outcome is ExecutionOutcome.SUCCEEDED and not details.output_truncated)
        if not (_returned(evidence) and whole and isinstance(block, TextBlock)):
            return Verdict(VerificationOutcome.UNKNOWN, "there is no whole result of one text")
        if len(block.text) > _LONGEST_RESULT:
            return Verdict(VerificationOutcome.UNKNOWN, f"the result has more than {_LONGEST_RESULT:,} characters")
        try:
            value = from_json(block.text)
        except ValueError:
            return Verdict(VerificationOutcome.FAILED, "the result is not one JSON value")
        wrong = self._check(value)
        if wrong:
            return Verdict(VerificationOutcome.FAILED, f"the result has another form: {wrong[0]}"[:_LONGEST_REASON])
        return Verdict(VerificationOutcome.PASSED, "the result has the form")


class ShellExitCodeVerifier:
    """Checks that a command ended with a certain exit code.

    Args:
        tool_name: The tool that runs commands, up to 128 characters.
        expected: The exit code. Default 0.

    Raises:
        InvalidOption: The name is blank or too long.

    Examples:
        >>> ShellExitCodeVerifier("execute").id
        'shell-exit-v1:execute:0'
    """

    def __init__(self, tool_name: str, expected: int = 0) -> None:
        if not tool_name.strip() or len(tool_name) > _LONGEST_NAME:
            raise InvalidOption("tool_name", tool_name, f"the name of a tool, up to {_LONGEST_NAME} characters")
        self._tool_name, self._expected = tool_name, expected
        self.id = f"shell-exit-v1:{tool_name}:{expected}"

    def verify(self, evidence: Evidence, /) -> Verdict:
        """PASSED for the code and a whole output, FAILED for another code, UNKNOWN where the tool does not say."""
        details = evidence.details
        unknown = details is None or details.outcome in (ExecutionOutcome.UNKNOWN, ExecutionOutcome.PARTIAL)
        if evidence.result.name != self._tool_name or details is None or details.kind != "shell" or unknown:
            return Verdict(VerificationOutcome.UNKNOWN, f"{self._tool_name} does not say how the command ended")
        if details.exit_code is None or (details.outcome is ExecutionOutcome.SUCCEEDED) is not (details.exit_code == 0):
            return Verdict(VerificationOutcome.UNKNOWN, "outcome and exit code contradict each other")
        if details.exit_code != self._expected:
            return Verdict(VerificationOutcome.FAILED, f"exit code {details.exit_code}, and not {self._expected}")
        if details.output_truncated:
            return Verdict(VerificationOutcome.UNKNOWN, f"exit code {self._expected}, but the output was cut")
        return Verdict(VerificationOutcome.PASSED, f"exit code {self._expected}")


def _returned(evidence: Evidence) -> bool:
    returned = evidence.observation.status is ActionStatus.RETURNED
    return returned and evidence.result.state is ToolResultState.SUCCESS


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[str, object]", value).items():
            yield key
            yield from _keys(each)
    elif isinstance(value, (list, tuple)):
        for each in cast("list[object]", value):
            yield from _keys(each)
