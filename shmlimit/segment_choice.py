"""Which segment is meant: one that was named, that of shmlimit.toml, or the only one there is."""

from __future__ import annotations

import os

from shmlimit.config import ENVIRONMENT_VARIABLE, Config
from shmlimit.errors import ConfigError, SegmentNotFound
from shmlimit.segment_file import not_found
from shmlimit.segment_listing import listed
from shmlimit.segment_name import DIRECTORY, segment_name

_REMEDY = "say which is meant, by --table NAME and --owner UID"


def chosen(name: str | None, owner: int | None) -> tuple[str, int]:
    """Its limiter's name, and the uid of its owner. Root means everybody's when no owner is given,
    its own first. Raises SegmentNotFound, and ConfigError when several could be meant."""
    uid = os.geteuid()
    name = name or _configured()
    if name and owner is not None:
        return name, owner
    path = DIRECTORY + segment_name(name, uid) if name else None
    whose = owner if owner is not None else uid or None
    found = [each for each in listed(whose) if each.finished and each.named]
    meant = [each for each in found if name in (None, each.name)]
    meant = [each for each in meant if each.owner == uid] or meant
    if len(meant) == 1:
        return meant[0].name, meant[0].owner
    if meant:
        those = ", ".join(f"{each.name!r} of uid {each.owner}" for each in meant)
        raise ConfigError(f"there are several segments ({those}): {_REMEDY}")
    if path:
        raise not_found(path)
    raise SegmentNotFound(f"there is no segment in {DIRECTORY}: is the server running? If so, run "
                          f"this as its workers' user or as root")  # fmt: skip


def _configured() -> str | None:
    """The name in shmlimit.toml; None when there is no such file where it is looked for."""
    place = Config.place()
    if not (os.environ.get(ENVIRONMENT_VARIABLE) or os.path.lexists(place)):
        return None
    try:
        return Config.load(Config.find()).table.name
    except ConfigError as error:
        raise ConfigError(f"{error}; or {_REMEDY}") from None
