"""`agentscope-rx context`: what the next request would hold, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line
from agentscope_rx.cli.render import new_console
from agentscope_rx.cli.run import RunOptions, checked, stored_builder
from agentscope_rx.cli.tally import counted
from agentscope_rx.compactions import Compaction, CompactionDecision
from agentscope_rx.manifest import ContextManifest, ManifestItem
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.wire import to_json

if TYPE_CHECKING:
    from rich.table import Table

_BAR: Final = 40
_SHOWN_ITEMS: Final = 40
_NUMBERS: Final = ("tokens", "messages")
_TOKENS: Final = ("tokensBefore", "tokensAfter")
_COLOURS: Final = {
    "system": "blue",
    "tools": "magenta",
    "conversation": "green",
    "transient": "yellow",
    "references": "cyan",
}


async def context(task: str, options: RunOptions) -> ExitCode:
    """Show the request with which a task would begin; no model is called and nothing is changed.

    With `json` it is the whole manifest as one object, and below `compactions` those that the session has been
    through, without what they replaced.

    Args:
        task: What the user would say.
        options: As for `run`.

    Raises:
        ConfigError: The task or an option is wrong.
    """
    model = checked(task, options)
    ctx = RuntimeContext(user_id=options.user, session_id=options.session)
    async with stored_builder(model, options).build() as agent:
        prepared, compactions = await agent.prepare(task, ctx), await agent.compactions(ctx)
    if options.json:
        data = prepared.manifest.to_data(full=True) | {"compactions": [_compaction_data(each) for each in compactions]}
        print(harmless_json(to_json(data).decode()), flush=True)
    else:
        _show(prepared.manifest, compactions, quiet=options.quiet)
    if prepared.error is not None:
        say(f"error: {one_line(str(prepared.error))}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _compaction_data(compaction: Compaction) -> Mapping[str, object]:
    return {
        "id": compaction.id,
        "createdAt": compaction.created_at,
        "trigger": compaction.trigger,
        "model": compaction.model,
        "messagesReplaced": _replaced(compaction),
        "tokensBefore": compaction.tokens_before,
        "tokensAfter": compaction.tokens_after,
    }


def _replaced(compaction: Compaction) -> int:
    return sum(1 for _ in compaction.replaced.messages)


def _show(manifest: ContextManifest, compactions: Sequence[Compaction], *, quiet: bool) -> None:
    console = new_console()
    limit = f"of {manifest.input_limit:,} tokens" if manifest.input_limit else "tokens, without a limit"
    console.print(f"about {manifest.estimated_input_tokens:,} {limit} ({manifest.pressure:.0%})", highlight=False)
    console.print(f"counted by {manifest.counting_method}, {'exact' if manifest.exact else 'an estimate'}", style="dim")
    console.print(_categories(manifest))
    if quiet:
        return
    decision, changes = manifest.compaction, _changes(manifest)
    for table in (
        None if decision is None else _titled("compaction", "", rows=_decision_rows(decision)),
        _titled("what would be changed, most saved first", "by", "why", "tokens", rows=changes),
        _titled("compactions so far", "at", "asked for by", "messages", "tokens", rows=_history_rows(compactions)),
        _items(manifest),
    ):
        if table is not None and table.row_count:
            console.print()
            console.print(table)


def _categories(manifest: ContextManifest) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    most = max(1, *manifest.categories.values()) if manifest.categories else 1
    for category, tokens in manifest.categories.items():
        bar = "█" * round(_BAR * tokens / most)
        table.add_row(category, Text(f"{tokens:,}", justify="right"), Text(bar, _COLOURS.get(category, "")))
    return table


def _items(manifest: ContextManifest) -> Table:
    items = sorted(manifest.items, key=lambda item: -item.tokens)
    shown = [_row(item) for item in items[:_SHOWN_ITEMS]]
    if len(items) > _SHOWN_ITEMS:
        rest = sum(item.tokens for item in items[_SHOWN_ITEMS:])
        shown.append((f"… {len(items) - _SHOWN_ITEMS} more", "", f"{rest:,}", ""))
    return _titled("what it holds, largest first", "zone", "tokens", "added by", rows=shown)


def _row(item: ManifestItem) -> tuple[str, ...]:
    origin = item.operator or ("the session" if item.zone == "conversation" else "the layout")
    return item.id, item.zone, f"{item.tokens:,}", origin


# -- what is shortened --------------------------------------------------------------------------------------


def _decision_rows(decision: CompactionDecision) -> Iterator[tuple[str, str]]:
    """Whether the history would give way to a summary, why or why not, and the figures that this rests on."""
    yield "outcome", decision.outcome.value.replace("_", " ")
    if decision.trigger:
        yield "asked for by", decision.trigger
    if decision.reason:
        yield "reason", decision.reason
    yield "messages", _change(decision.messages_before, decision.messages_after)
    yield "tokens", f"{_change(decision.tokens_before, decision.tokens_after)} of {decision.budget:,}"
    if decision.summary_tokens:
        yield "replaced", f"{decision.replaced_tokens:,} tokens by a summary of at most {decision.summary_tokens:,}"
    if decision.break_even_steps is not None:
        since = f"the last one, or the beginning, was {decision.steps_since or 0:,} ago"
        yield "pays after", f"{decision.break_even_steps:g} steps; {since}"


def _changes(manifest: ContextManifest) -> list[tuple[str, ...]]:
    """What was moved, shortened or left out, by whom, why, and what that saves."""
    changes = cast("list[Mapping[str, Any]]", manifest.to_data(full=True)["changes"])
    changes.sort(key=lambda change: change["tokensAfter"] - change["tokensBefore"])
    rows = [_change_row(change) for change in changes[:_SHOWN_ITEMS]]
    if len(changes) > _SHOWN_ITEMS:
        before, after = (sum(each[name] for each in changes[_SHOWN_ITEMS:]) for name in _TOKENS)
        rows.append((f"… {len(changes) - _SHOWN_ITEMS} more", "", "", f"{before:,} -> {after:,}"))
    return rows


def _change_row(change: Mapping[str, Any]) -> tuple[str, ...]:
    item = str(change["sourceId"])
    if change["count"] > 1:
        item = f"{counted(change['count'], 'item')}: {item} to {change['lastSourceId']}"
    before, after = (change[name] for name in _TOKENS)
    return item, str(change["operator"]), str(change["reason"]), f"{before:,} -> {after:,}"


def _history_rows(compactions: Iterable[Compaction]) -> Iterator[tuple[str, ...]]:
    for each in compactions:
        tokens = f"{each.tokens_before:,} -> {each.tokens_after:,}"
        yield each.id, each.created_at, each.trigger, f"{_replaced(each):,}", tokens


def _change(before: int, after: int) -> str:
    return f"{before:,} -> {after:,}" if after else f"{before:,}"


def _titled(*headings: str, rows: Iterable[tuple[str, ...]]) -> Table:
    """A table whose every cell is harmless."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table
