"""ReActAgent: reason, act, reason again."""

from __future__ import annotations

from typing import Unpack

from agentscope_rx.agent import Agent
from agentscope_rx.builder import AgentBuilder, BuilderKeywords
from agentscope_rx.options import AgentOptions
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.pipelines import react_pipeline


class ReActAgent(Agent[AgentOptions]):
    """An agent whose requests are what its session holds: no sources, no budget.

    Examples:
        >>> from agentscope_rx.testing import ScriptedModel, text
        >>> builder = ReActAgent.builder(name="greeter", model=ScriptedModel([text("Hello!")]))
        >>> builder.build().call("Hi").run().text
        'Hello!'
    """

    @staticmethod
    def builder(**options: Unpack[BuilderKeywords]) -> AgentBuilder[ReActAgent, AgentOptions]:
        """Begin to configure an agent; every option is also a method of the builder."""
        return AgentBuilder(ReActAgent, AgentOptions()).configured(options)

    @staticmethod
    def builder_from(agent: ReActAgent) -> AgentBuilder[ReActAgent, AgentOptions]:
        """A builder with all that an agent was made of."""
        return AgentBuilder(ReActAgent, agent.options)

    def _make_pipeline(self, options: AgentOptions) -> Pipeline:
        return react_pipeline(options)
