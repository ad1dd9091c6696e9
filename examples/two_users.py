"""One builder and two users, each with files of their own over those for all: python examples/two_users.py"""

import asyncio
import os
from pathlib import Path

from agentscope_rx import HarnessAgent, RuntimeContext
from agentscope_rx.testing import ScriptedModel, calls

WORKSPACE = Path("two_users_workspace")
SCRIPTED = ScriptedModel(
    [
        calls(("c1", "write_file", '{"path": "notes/tea.md", "content": "Alice drinks tea."}')),
        "C'est noté.",
        calls(("c2", "grep_files", '{"pattern": "tea"}')),
        "I know nothing about tea.",
    ]
)
ALICE, BOB = (RuntimeContext(user_id=name, session_id="desk") for name in ("alice", "bob"))


async def main() -> None:
    builder = HarnessAgent.builder(  # configured once, at start-up
        name="desk",
        model=os.environ.get("AGENTSCOPE_RX_MODEL") or SCRIPTED,
        workspace=WORKSPACE,
    ).isolation("user")  # files are kept apart, and no shell is offered

    async with builder.build() as agent:
        # her own rules, in the place of those for all
        await agent.files(ALICE).write("AGENTS.md", b"Answer in French.")

    for who, question in ((ALICE, "Note that I drink tea."), (BOB, "What do you know about tea?")):
        async with builder.build() as agent:  # one for each request, as a server makes it
            rules = (await agent.files(who).read("AGENTS.md")).data.decode()
            prepared = await agent.prepare(question, who)
            in_request = any("French" in block.text for block in prepared.manifest.draft.system)
            print(f"{who.user_id}: {rules} In French: {in_request}")
            print(f"{who.user_id}: {(await agent.call(question, who)).text}")
            files = [str(entry.path) for entry in await agent.files(who).list()]
            print(f"{who.user_id}: sees {', '.join(files)}")


if __name__ == "__main__":
    WORKSPACE.mkdir(exist_ok=True)
    (WORKSPACE / "AGENTS.md").write_text("Answer in English.")  # the rules for all
    asyncio.run(main())
