"""The live view: what a run thinks, says, calls and gets, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import agentscope_rx.events as ev
from agentscope_rx.cli.flow import Flow, width_of
from agentscope_rx.cli.plain import fitted, one_line, plain
from agentscope_rx.cli.tally import counted
from agentscope_rx.messages import Base64Source, DataBlock, ToolResultState
from agentscope_rx.wire import json_object, to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_INDENT: Final = 4
_PREVIEW_LINES: Final = 3
_LONGEST_VALUE: Final = 120
_LONGEST_LINE: Final = 160
_MARKS: Final[Mapping[ToolResultState, tuple[str, str]]] = {
    ToolResultState.SUCCESS: ("✓", "green"),
    ToolResultState.RUNNING: ("…", "yellow"),
}
_FAILED: Final = ("✗", "red")


def new_console() -> Console:
    """A console on stdout that takes every text as it is."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


class LiveView:
    """Shows a run in a terminal, or as plain text where there is none.

    Args:
        console: Where it goes.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._flow = Flow(console, indent=_INDENT)
        self._status: Status | None = None
        self._steps = 0
        self._numbered = True  # whether the current step has shown its number
        self._calls: dict[str, list[str]] = {}  # the arguments so far of each tool call
        self._results: dict[str, list[str]] = {}

    def show(self, event: ev.AgentEvent) -> None:
        """Show one event."""
        match event:
            case ev.ModelCallStart(model=model):
                self._begin_step()
                self._wait(f"waiting for {one_line(model, limit=40)}")
            case ev.ThinkingBlockStart():
                self._begin_text("dim italic")
            case ev.TextBlockStart():
                self._begin_text("")
            case ev.TextBlockDelta(delta=delta) | ev.ThinkingBlockDelta(delta=delta):
                self._flow.write(delta)
            case ev.TextBlockEnd() | ev.ThinkingBlockEnd():
                self._flow.end()
            case ev.ToolCallStart() | ev.ToolCallDelta() | ev.ToolCallEnd():
                self._show_call(event)
            case ev.ToolResultStart() | ev.ToolResultTextDelta() | ev.ToolResultDataDelta() | ev.ToolResultEnd():
                self._show_result(event)
            case _:
                self._show_other(event)

    def close(self) -> None:
        """Stop what moves and end the line."""
        self._stop_waiting()
        self._flow.end()

    # -- steps and text -------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._steps += 1
        self._numbered = False
        self._console.print()

    def _begin_text(self, style: str) -> None:
        self._stop_waiting()
        self._flow.begin(style, column=self._gutter())

    def _gutter(self) -> int:
        """Write the number of the step, where it has none yet; returns the cursor's column."""
        if self._numbered:
            return 0
        self._numbered = True
        number = f"{self._steps:>2}  "
        self._print(number, "bold cyan", end="")
        return len(number)

    def _wait(self, what: str) -> None:
        self._stop_waiting()
        if self._console.is_terminal:
            from rich.text import Text

            self._status = self._console.status(Text(f"{what} …", "dim"), spinner_style="dim")
            self._status.start()

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    # -- tools ----------------------------------------------------------------------------------------------

    def _show_call(self, event: ev.ToolEvent) -> None:
        arguments = self._calls.setdefault(event.tool_call_id, [])
        if isinstance(event, ev.ToolCallDelta):
            arguments.append(event.delta)
        elif isinstance(event, ev.ToolCallEnd):
            self._stop_waiting()
            self._print_call(event.tool_call_name, _arguments_shown("".join(arguments)))
            del self._calls[event.tool_call_id]

    def _print_call(self, tool: str, arguments: str) -> None:
        name = one_line(tool, limit=64)
        self._print(f"{' ' * (_INDENT - self._gutter())}→ ", "cyan", end="")
        self._print(name, "bold cyan", end="")
        flow = Flow(self._console, indent=_INDENT + 2)
        flow.begin("cyan", column=_INDENT + 2 + len(name))
        flow.write(f"({arguments})")
        flow.end()

    def _show_result(self, event: ev.ToolEvent) -> None:
        pieces = self._results.setdefault(event.tool_call_id, [])
        match event:
            case ev.ToolResultStart():
                self._wait(f"running {one_line(event.tool_call_name, limit=64)}")
            case ev.ToolResultTextDelta(delta=delta):
                pieces.append(delta)
            case ev.ToolResultDataDelta(data=block) if isinstance(block, DataBlock):
                pieces.append(f"[{_media_type(block)}]\n")
            case ev.ToolResultEnd(state=state):
                self._stop_waiting()
                self._print_result(event.tool_call_name, "".join(self._results.pop(event.tool_call_id)), state)
            case _:
                pass

    def _print_result(self, tool: str, text: str, state: ToolResultState) -> None:
        lines = plain(text).splitlines()
        mark, style = _MARKS.get(state, _FAILED)
        what = counted(len(lines), "line") if state is ToolResultState.SUCCESS else state.value
        self._print(f"{' ' * _INDENT}{mark} ", style, end="")
        self._print(f"{one_line(tool, limit=64)}: {what}", style)
        shown = [line for line in lines if line.strip()][:_PREVIEW_LINES]
        for line in shown:
            self._print(f"{' ' * _INDENT}│ {fitted(line, self._line_limit())}", "dim")
        if len(lines) > len(shown):
            self._print(f"{' ' * _INDENT}│ … {len(lines) - len(shown):,} more", "dim")

    # -- the rest -------------------------------------------------------------------------------------------

    def _show_other(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.DataBlockStart(media_type=media_type):
                self._note(f"[{media_type}]")
            case ev.ExceedMaxIters(max_iters=limit):
                self._note(f"the limit of {counted(limit, 'step')} is reached: the model is asked to conclude")
            case ev.Custom(name="model_retry", value=value):
                error, attempt = value.get("error"), value.get("attempt")
                self._note(f"the model could not be asked ({error}): attempt {attempt} follows")
            case ev.Custom(name="compaction_end" | "compaction_failed", value=value):
                self._note(_compaction_shown(value), "dim")
            case ev.RequireExternalExecution(tool_calls=calls):
                self._note(f"waiting for somebody to run: {', '.join(call.name for call in calls)}")
            case ev.RequireUserConfirm(tool_calls=calls):
                self._note(f"waiting for a person: {', '.join(call.name for call in calls)}")
            case ev.AgentEnd():
                self._stop_waiting()
            case _:
                pass

    def _note(self, text: str, style: str = "yellow") -> None:
        self._stop_waiting()
        self._print(f"{' ' * _INDENT}{one_line(text, limit=self._line_limit())}", style)

    def _line_limit(self) -> int:
        return (width_of(self._console) or _LONGEST_LINE) - _INDENT - 2

    def _print(self, text: str, style: str, *, end: str = "\n") -> None:
        from rich.text import Text

        self._console.print(Text(text, style), end=end, soft_wrap=True)


def _arguments_shown(written: str) -> str:
    """Arguments as in a call of Python, or as the model wrote them where they are no JSON object."""
    arguments = json_object(written)
    if arguments is None:
        return one_line(written, limit=_LONGEST_VALUE)
    return ", ".join(f"{one_line(name, limit=64)}={_value_shown(value)}" for name, value in arguments.items())


def _compaction_shown(value: Mapping[str, object]) -> str:
    """What became of a compaction, in a line."""
    if "reason" in value:
        return f"not compacted: {value['reason']}"
    figures = (value.get(name) for name in ("messages_before", "tokens_before", "tokens_after"))
    messages, before, after = (each if isinstance(each, int) else 0 for each in figures)
    return f"compacted {counted(messages, 'message')}: {before:,} -> {after:,} tokens"


def _value_shown(value: object) -> str:
    return one_line(to_json(value).decode(), limit=_LONGEST_VALUE)


def _media_type(block: DataBlock) -> str:
    source = block.source
    return source.media_type if isinstance(source, Base64Source) else source.mime_type or "media"
