"""The type of a key: what a limit counts by. `Limit` says which keys are equal."""

from __future__ import annotations

Key = str | bytes | tuple[str | bytes | int, ...]
