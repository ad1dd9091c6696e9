"""Operators of your own in the pipeline of a step: one that rewrites, one that adds, one that is stock Rx.

python examples/custom_operator.py
"""

import os
import re

from reactivex import operators as ops

from agentscope_rx import ContextBlock, ReActAgent
from agentscope_rx.operators import RequestDraft, Step, text_operator, view_operator
from agentscope_rx.testing import ScriptedModel

EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


@text_operator  # one text in, one text out; remembered per message, so that only new ones are read
def redact_emails(text: str) -> str:
    return EMAIL.sub("[email]", text)


@view_operator  # changes this request only; the session keeps what was said
def with_the_step(draft: RequestDraft, step: Step) -> RequestDraft:
    return draft.add_transient(ContextBlock.runtime("step", f"This is reasoning step {step.number + 1}."))


@view_operator
def print_request(draft: RequestDraft, step: Step) -> RequestDraft:
    for message in draft.conversation.messages:
        print("the model reads:", message.text)
    for block in draft.transient:
        print("           and:", block.text)
    return draft


builder = ReActAgent.builder(
    name="discreet",
    model=os.environ.get("AGENTSCOPE_RX_MODEL") or ScriptedModel(["I will write to [email]."]),
).pipeline(
    lambda default: (
        default.insert_before("validate_request", redact_emails)
        .insert_before("validate_request", with_the_step)
        .insert_after("validate_request", print_request)
        .around("call_model", ops.timeout(30))
    )  # a stock Rx operator, for that operator alone
)

if __name__ == "__main__":
    print(builder.build().pipeline)
    print(builder.call("Write to alice@example.org that all is well.").run().text)
