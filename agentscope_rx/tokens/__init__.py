"""How many tokens a text, a message or a request has, found out without a network."""

from agentscope_rx.tokens.encodings import preload as preload
from agentscope_rx.tokens.estimators import ContextTokenEstimator as ContextTokenEstimator
from agentscope_rx.tokens.estimators import TokenEstimator as TokenEstimator
from agentscope_rx.tokens.measure import HAS_MEDIA as HAS_MEDIA
from agentscope_rx.tokens.measure import MESSAGE_TOKENS as MESSAGE_TOKENS
from agentscope_rx.tokens.measure import REPLY_TOKENS as REPLY_TOKENS
from agentscope_rx.tokens.measure import TokenMeasure as TokenMeasure
from agentscope_rx.tokens.measure import token_measure as token_measure
from agentscope_rx.tokens.ratios import MeasuredRatio as MeasuredRatio
