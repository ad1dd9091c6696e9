"""Everything that can go wrong, as one tree.

    AgentScopeError
      ConfigError(ValueError)       InvalidOption, InvalidIdentifier, UnknownProvider, MissingApiKey,
                                    MissingExtra, PipelineError
      ContextError                  ContextBudgetExceeded, InvalidToolPairs, SourceFailed, EditRefused,
                                    NotShortened, UndoRefused
      ConflictError                 StateConflict (TaskConflict), HistoryConflict, SessionBusy, LeaseLost,
                                    ReentrantCall
      ProviderError                 ContextOverflow, PayloadTooLarge, OutputCap, RateLimited, QuotaExceeded,
                                    BadRequest, AuthenticationFailed, ServerFailed, StreamFailed,
                                    StreamIncomplete, ProviderTimeout, ProviderUnreachable
      SessionError                  StateUnreadable, LogCorrupt, LogUnreadable, RequestUnknown,
                                    StoreUnavailable, UncertainToolCalls, TaskRefused(ValueError), InteractionPending,
                                    InteractionMismatch
      RunError                      StepLost, RetryRefused, OutputInvalid, ConsumerFailed, BufferOverflow,
                                    SourceCancelled, AgentClosed, AgentShuttingDown, RunningLoopError,
                                    CommandStopped, CommandGone, NothingRunning, TaskNotResumable
      WorkspaceError(OSError)       PathRefused, FileTooLarge, WorkspaceConflict, FileEditRefused
      TestingError                  ScriptEnded, RealRequestRefused, ConformanceFailed,
                                    RecordingDamaged, ReplayMismatch

A message says what was wrong, which value it was and what to do about it. `error.code` is the snake-case name
of the class: it goes into events and log records, where the text of a message never does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from agentscope_rx.differences import Difference
    from agentscope_rx.interactions import PendingCall

from agentscope_rx.secret_names import without_secrets


class AgentScopeError(Exception):
    """The root of every error that this library raises."""

    code: ClassVar[str] = "agent_scope_error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


# -- configuration ------------------------------------------------------------------------------------------


class ConfigError(AgentScopeError, ValueError):
    """Something was configured wrongly; raised where it is configured, not when it is used."""


class InvalidOption(ConfigError):
    """An option has a value that its rule refuses.

    Args:
        option: The option's name, as the user wrote it.
        value: The refused value; what is secret in it, by its name, is not shown.
        rule: What a good value looks like.
    """

    def __init__(self, option: str, value: object, rule: str) -> None:
        value = without_secrets(option, value)
        super().__init__(f"{option}={value!r}: {rule}")
        self.option, self.value, self.rule = option, value, rule


class InvalidIdentifier(ConfigError):
    """A user, session or agent id is blank, too long or holds control characters."""

    def __init__(self, what: str, value: object) -> None:
        shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
        super().__init__(
            f"{what} {shown} is not usable: give 1 to 512 characters, not blank, "
            "without control characters or lone surrogates"
        )


class UnknownProvider(ConfigError):
    """A model string names no known provider."""


class MissingApiKey(ConfigError):
    """A provider needs a key and none was given or found in the environment."""


class MissingExtra(ConfigError):
    """A feature needs a package that is not installed.

    Args:
        feature: What was asked for.
        extra: The extra that brings the package.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional package: pip install 'agentscope-rx[{extra}]'")
        self.extra = extra


class PipelineError(ConfigError):
    """A pipeline was put together in a way that cannot work."""


# -- context ------------------------------------------------------------------------------------------------


class ContextError(AgentScopeError):
    """A request could not be prepared."""


class ContextBudgetExceeded(ContextError):
    """A request is larger than it may be, and nothing more can be left out of it.

    Args:
        estimated: Tokens of the request, as estimated.
        limit: Tokens that it may have.
        largest: Its largest items with their tokens, largest first.
    """

    def __init__(self, estimated: int, limit: int, largest: tuple[tuple[str, int], ...] = ()) -> None:
        items = ", ".join(f"{name} ({tokens:,})" for name, tokens in largest)
        super().__init__(
            f"the request has about {estimated:,} tokens and may have {limit:,}"
            + (f"; the largest items are {items}" if items else "")
            + ". Shorten these, mark blocks as optional, offer fewer tools, or take a model with a larger window"
        )
        self.estimated, self.limit, self.largest = estimated, limit, largest


class InvalidToolPairs(ContextError):
    """A request would hold a tool call without its result, or a result without its call."""


class SourceFailed(ContextError):
    """A context source failed, or gave something that cannot be used.

    Args:
        source: The source's name.
        why: What it did.
    """

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"the context source {source!r} {why}")
        self.source = source


class EditRefused(ContextError):
    """A history operator proposed something that is no replacement of neighbouring exchanges.

    Args:
        operator: The name of the operator.
        why: Which rule it broke.
    """

    def __init__(self, operator: str, why: str) -> None:
        super().__init__(f"{operator}: {why}")
        self.operator = operator


class NotShortened(ContextError):
    """A request that the provider found too long could not be made any shorter, and is not sent again."""


class UndoRefused(ContextError):
    """A compaction cannot be undone: it is not known, or a later one lies over it."""


# -- conflicts ----------------------------------------------------------------------------------------------


class ConflictError(AgentScopeError):
    """Somebody else was faster, or is still at work."""


class StateConflict(ConflictError):
    """The stored state changed under a run; nothing was overwritten."""


class TaskConflict(StateConflict):
    """A session's task changed since the revision that a change of it was decided on; nothing was changed."""


class HistoryConflict(ConflictError):
    """The session's history changed while a request was being prepared."""


class SessionBusy(ConflictError):
    """Another call held the session for longer than `wait_timeout`, or another process has its lease."""


class LeaseLost(ConflictError):
    """Somebody else has had the session since this lease was given; what was to be written was not."""


class ReentrantCall(ConflictError):
    """A call waits for a session that its own task holds, which would wait for ever."""


# -- providers ----------------------------------------------------------------------------------------------


class ProviderError(AgentScopeError):
    """A model call failed.

    Args:
        message: What the provider said.
        status: The HTTP status, where there was one.
        provider_code: The provider's own code, as text.
        retry_after: Seconds that the provider asks to wait, where it said so.

    Attributes:
        kind: Which sort of failure it is; one for each subclass, stable, for programs.
        may_be_overflow: Whether the request may have been longer than the model's window although the provider
            does not say so, as with a status 400 or 413 without a body. Only a `BadRequest` or `PayloadTooLarge`
            has it, and it means something only for a request whose estimate is near the window.
    """

    kind: ClassVar[str] = "provider_error"
    retryable: ClassVar[bool] = False
    may_be_overflow: bool = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        provider_code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.provider_code, self.retry_after = status, provider_code, retry_after


class ContextOverflow(ProviderError):
    """The request is longer than the model's window.

    Attributes:
        limit: The window in tokens, or the longest input, where the provider named it.
    """

    kind = "context_overflow"
    limit: int | None = None


class PayloadTooLarge(ProviderError):
    """The request has too many bytes for the provider or a proxy before it."""

    kind = "payload_too_large"


class OutputCap(ProviderError):
    """The request asks for more output than the model can give, or than its input leaves room for.

    Attributes:
        limit: The largest output in tokens that the provider would take for this request, where it could be told.
            It may be small, where the input nearly fills the window.
    """

    kind = "output_cap"
    limit: int | None = None


class RateLimited(ProviderError):
    """Too many requests or tokens in a short time."""

    kind = "rate_limit"
    retryable = True


class QuotaExceeded(ProviderError):
    """The account has no credit left; waiting does not help."""

    kind = "quota"


class BadRequest(ProviderError):
    """The provider refused the request itself."""

    kind = "bad_request"


class AuthenticationFailed(ProviderError):
    """The key is wrong, or may not use this model."""

    kind = "authentication"


class ServerFailed(ProviderError):
    """The provider failed (HTTP 5xx)."""

    kind = "server"
    retryable = True


class StreamFailed(ProviderError):
    """The provider reported an error inside a stream that had begun well."""

    kind = "stream_error"
    retryable = True


class StreamIncomplete(ProviderError):
    """The stream ended before the model had finished."""

    kind = "stream_incomplete"
    retryable = True


class ProviderTimeout(ProviderError):
    """The provider did not answer, or went quiet, for longer than allowed."""

    kind = "timeout"
    retryable = True


class ProviderUnreachable(ProviderError):
    """No connection to the provider could be made or kept."""

    kind = "unreachable"
    retryable = True


# -- sessions -----------------------------------------------------------------------------------------------


class SessionError(AgentScopeError):
    """A session cannot be opened, or cannot go on like this."""


class StateUnreadable(SessionError):
    """A stored state cannot be read; it is left as it is and no fresh one is made in its place."""


class LogUnreadable(SessionError):
    """A record of a session's log cannot be read: it is damaged, or newer than this library."""


class RequestUnknown(SessionError):
    """A session's log holds no such request: it was never made, or its agent keeps none."""


class UncertainToolCalls(SessionError):
    """A process ended while tools ran, and nobody knows whether they had an effect.

    Args:
        calls: The ids of the calls.
    """

    def __init__(self, calls: tuple[str, ...]) -> None:
        super().__init__(
            f"nobody knows what became of the tool calls {', '.join(calls)}: find out, and say so with "
            "agent.reconcile(ctx, {call id: result}, reason=...)"
        )
        self.calls = calls


class LogCorrupt(SessionError):
    """A session's log is damaged before its end; it is left as it is.

    Args:
        file: The file that holds the log.
        offset: Where in it the first byte is that cannot be right.
    """

    def __init__(self, file: str, offset: int) -> None:
        super().__init__(
            f"{file} is damaged from byte {offset} on, and was left as it is: restore it from a copy, or move it "
            "away to begin the session anew"
        )
        self.file, self.offset = file, offset


class StoreUnavailable(SessionError):
    """A store cannot be reached, or did not answer; what was to be written may be stored or not."""


class TaskRefused(SessionError, ValueError):
    """A session's task cannot be changed like that: a text is too long, an id is not known, a rule is broken."""


class InteractionPending(SessionError):
    """Tool calls of the session wait for a person or for their results, so that nothing else can come in between.

    Args:
        calls: What waits.
    """

    def __init__(self, calls: tuple[PendingCall, ...]) -> None:
        waiting = ", ".join(f"{each.call.name} ({each.id}: {each.kind})" for each in calls)
        super().__init__(
            f"tool calls wait for an answer: {waiting}. Answer with respond(...), or give them up with "
            "cancel_pending(...), before anything else is said"
        )
        self.calls = calls


class InteractionMismatch(SessionError):
    """An answer fits no tool call that waits; nothing of it was accepted, and what waits goes on waiting."""


# -- runs ---------------------------------------------------------------------------------------------------


class RunError(AgentScopeError):
    """A run went wrong for a reason that is not the provider's."""


class StepLost(RunError):
    """An operator let no step, or a second one, through: one step in, one step out is the law."""


class PreparationLeft(RunError):
    """A request was not prepared to the end: what is around it timed out, or the run was interrupted."""


class RetryRefused(RunError):
    """A retry came back to a step whose tools have already begun."""


class OutputInvalid(RunError):
    """The answer has not the form that was asked for, or a message holds no structured answer."""


class CommandGone(RunError):
    """What a session was told to do is done already, or given up, or is not the next thing to do."""


class NothingRunning(RunError):
    """A run was told something, and none is at work."""


class TaskNotResumable(RunError):
    """There is nothing to go on with, or something else has to come first."""


class ConsumerFailed(RunError):
    """A subscriber raised while it was handed an event; its own run was cancelled. The cause is chained."""


class BufferOverflow(RunError):
    """A consumer fell further behind than its buffer allows."""


class SourceCancelled(RunError):
    """The task behind a stream was cancelled by somebody other than its subscriber."""


class AgentClosed(RunError):
    """The agent was closed before this call."""


class AgentShuttingDown(RunError):
    """The process is shutting down, and begins nothing new."""


class RunningLoopError(RunError):
    """A blocking call was made on a thread whose event loop it would block."""


class CommandStopped(RunError):
    """A command of a shell was stopped before its end: it took too long, or wrote too much."""


# -- workspace ----------------------------------------------------------------------------------------------


class WorkspaceError(AgentScopeError, OSError):
    """A file of the workspace cannot be used."""


class PathRefused(WorkspaceError):
    """A path leads out of the workspace, or into its private part."""


class FileTooLarge(WorkspaceError):
    """A file is larger than what may be read at once."""


class WorkspaceConflict(WorkspaceError):
    """A file changed since it was read."""


class FileEditRefused(WorkspaceError):
    """The text that an edit was to replace is not in the file, or more than once."""


# -- testing ------------------------------------------------------------------------------------------------


class TestingError(AgentScopeError):
    """A test's own set-up was at fault."""

    __test__ = False


class ScriptEnded(TestingError):
    """A scripted model was asked for more replies than its script holds."""


class RealRequestRefused(TestingError):
    """A test tried to reach a host outside this machine.

    Args:
        host: Where it wanted to go.
    """

    def __init__(self, host: str) -> None:
        super().__init__(f"a connection to {host!r} was refused: tests may only talk to this machine")
        self.host = host


class RecordingDamaged(TestingError):
    """A recording cannot be read; it is left as it is.

    Args:
        file: The file.
        line: The first line that is not right, from 1.
        why: What is wrong with it.
    """

    def __init__(self, file: str, line: int, why: str) -> None:
        super().__init__(f"{file}, line {line}: {why}; record the run again, or restore the file from a copy")
        self.file, self.line = file, line


class ReplayMismatch(TestingError, AssertionError):
    """A replayed run does something else than the recorded one.

    Args:
        message: What, for people; many lines.
        run: Which run of the recording, from 0.
        step: In which reasoning step, from 0.
        differences: What is different, item by item.
    """

    def __init__(self, message: str, *, run: int = 0, step: int = 0, differences: tuple[Difference, ...] = ()) -> None:
        super().__init__(message)
        self.run, self.step, self.differences = run, step, differences


class ConformanceFailed(TestingError, AssertionError):
    """An implementation does not keep a rule of the protocol that it implements."""
