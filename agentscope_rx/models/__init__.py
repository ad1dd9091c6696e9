"""Models: `provider:model` strings, and two classes for endpoints that speak OpenAI's Chat Completions.

Nothing here loads an HTTP client or an SDK before the first request.
"""

from __future__ import annotations

from agentscope_rx.models.http_chat import HttpxChatModel as HttpxChatModel
from agentscope_rx.models.openai_chat import OpenAIChatModel as OpenAIChatModel
from agentscope_rx.models.overflow import OverflowRecogniser as OverflowRecogniser
from agentscope_rx.models.overflow import register_overflow_recogniser as register_overflow_recogniser
from agentscope_rx.models.providers import Provider as Provider
from agentscope_rx.models.providers import provider_names as provider_names
from agentscope_rx.models.providers import register_model as register_model
from agentscope_rx.models.providers import register_provider as register_provider
from agentscope_rx.models.providers import resolve_model as resolve_model
