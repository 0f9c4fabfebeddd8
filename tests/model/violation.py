"""What a broken invariant raises."""

from __future__ import annotations


class Violation(Exception):
    """The message starts with the invariant's name, as in the package's docstring.

    `probed`: the key whose probe showed it, after the interleaving; None when a step of it did.
    """

    def __init__(self, message: str, probed: int | None = None) -> None:
        super().__init__(message)
        self.probed = probed
