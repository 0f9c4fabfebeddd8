"""How many hosts share a limit: sources of the count, and the rules that turn readings into it.

Nothing here runs by itself. Whoever keeps the count asks `source_of(settings)` for the source,
reads it when `HostCount.next_read_at_s` says so or when the source has called `changed`, and tells
`HostCount` what came of it. docs/hosts.md has the rules and the failures.
"""
