"""shmlimit: one rate limit over all workers of a host, in shared memory.

limiter = shmlimit.Limiter("shop", per_ip="100/s burst 500")
decision = limiter["per_ip"].hit("203.0.113.7")
if not decision:
    ...  # refused: decision.retry_after seconds
"""

from shmlimit._core import CheckReport, Decision, HostsState, Limit, Reset
from shmlimit.agent.start import start_agent
from shmlimit.config import Config, LimitConfig, TableConfig
from shmlimit.decisions import Decisions
from shmlimit.errors import (
    AgentNotStarted,
    ConfigError,
    CostExceedsBurst,
    InvalidRate,
    LimiterClosed,
    LimitNotFound,
    LimitRemoved,
    RateLimitExceeded,
    SegmentError,
    ShmlimitError,
    TableDamaged,
    TooManyLimits,
)
from shmlimit.key import Key
from shmlimit.limiter import Limiter
from shmlimit.rate import Rate

__version__ = "0.1.0"

__all__ = [
    "AgentNotStarted",
    "CheckReport",
    "Config",
    "ConfigError",
    "CostExceedsBurst",
    "Decision",
    "Decisions",
    "HostsState",
    "InvalidRate",
    "Key",
    "Limit",
    "LimitConfig",
    "LimitNotFound",
    "LimitRemoved",
    "Limiter",
    "LimiterClosed",
    "Rate",
    "RateLimitExceeded",
    "Reset",
    "SegmentError",
    "ShmlimitError",
    "TableConfig",
    "TableDamaged",
    "TooManyLimits",
    "start_agent",
]
