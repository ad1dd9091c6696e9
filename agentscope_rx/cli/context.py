"""`agentscope-rx context`: what the next request would hold, and what it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line
from agentscope_rx.cli.render import new_console
from agentscope_rx.cli.run import RunOptions, checked, stored_builder
from agentscope_rx.manifest import ContextManifest, ManifestItem
from agentscope_rx.runtime_context import RuntimeContext

if TYPE_CHECKING:
    from rich.table import Table

_BAR: Final = 40
_SHOWN_ITEMS: Final = 40
_COLOURS: Final = {
    "system": "blue",
    "tools": "magenta",
    "conversation": "green",
    "transient": "yellow",
    "references": "cyan",
}


async def context(task: str, options: RunOptions) -> ExitCode:
    """Show the request with which a task would begin; no model is called and nothing is changed.

    Args:
        task: What the user would say.
        options: As for `run`.

    Raises:
        ConfigError: The task or an option is wrong.
    """
    model = checked(task, options)
    ctx = RuntimeContext(user_id=options.user, session_id=options.session)
    async with stored_builder(model, options).build() as agent:
        prepared = await agent.prepare(task, ctx)
    if options.json:
        print(harmless_json(prepared.manifest.to_json(full=True).decode()), flush=True)
    else:
        _show(prepared.manifest, quiet=options.quiet)
    if prepared.error is not None:
        say(f"error: {one_line(str(prepared.error))}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _show(manifest: ContextManifest, *, quiet: bool) -> None:
    console = new_console()
    limit = f"of {manifest.input_limit:,} tokens" if manifest.input_limit else "tokens, without a limit"
    console.print(f"about {manifest.estimated_input_tokens:,} {limit} ({manifest.pressure:.0%})", highlight=False)
    console.print(f"counted by {manifest.counting_method}, {'exact' if manifest.exact else 'an estimate'}", style="dim")
    console.print(_categories(manifest))
    if not quiet:
        console.print()
        console.print(_items(manifest))


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
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("what it holds, largest first", "zone", "tokens", "added by"):
        table.add_column(heading, justify="right" if heading == "tokens" else "left", overflow="fold")
    items = sorted(manifest.items, key=lambda item: -item.tokens)
    for item in items[:_SHOWN_ITEMS]:
        table.add_row(*(Text(one_line(cell)) for cell in _row(item)))
    if len(items) > _SHOWN_ITEMS:
        rest = sum(item.tokens for item in items[_SHOWN_ITEMS:])
        table.add_row(f"… {len(items) - _SHOWN_ITEMS} more", "", f"{rest:,}", "")
    return table


def _row(item: ManifestItem) -> tuple[str, ...]:
    origin = item.operator or ("the session" if item.zone == "conversation" else "the layout")
    return item.id, item.zone, f"{item.tokens:,}", origin
