"""The middleware when its limiter is reloaded, and when no gunicorn master has opened it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmlimit import LimitConfig, Limiter, Rate
from shmlimit.http.wsgi import RateLimitMiddleware
from tests.conftest import Clock
from tests.test_wsgi import Response, hello


@pytest.fixture
def file(segment_name: str, tmp_path: Path) -> Path:
    path = tmp_path / "shmlimit.toml"
    path.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = 100\n[limits.a]\nrate = "2/h"\nkey = "ip"\n'
    )
    return path


@pytest.fixture
def limiter(file: Path, clock: Clock) -> Iterator[Limiter]:
    with Limiter.from_config(file, clock=clock) as opened:
        yield opened


def test_a_key_that_was_changed_counts_from_the_next_request_on(
    file: Path, limiter: Limiter
) -> None:
    app = RateLimitMiddleware(hello, limiter)
    statuses = [Response(app).status for _ in range(3)]
    assert statuses == ["200 OK", "200 OK", "429 Too Many Requests"]
    file.write_text(file.read_text().replace('"ip"', '"header:X-Api-Key"'))
    limiter.reload()
    assert Response(app, HTTP_X_API_KEY="k").status == "200 OK"
    assert limiter["a"].peek("h:k").remaining == 0  # one of two is taken, and one asked for


def test_a_limit_that_was_removed_is_applied_no_more(file: Path, limiter: Limiter) -> None:
    app = RateLimitMiddleware(hello, limiter)
    assert Response(app).status == "200 OK"
    file.write_text(file.read_text().replace("limits.a", "limits.b"))
    limiter.reload()
    for _ in range(2):
        assert Response(app).status == "200 OK"
    assert Response(app).status == "429 Too Many Requests"
    assert limiter.counters()["a"]["allowed"] == 1


@pytest.mark.parametrize("before", [0, 1], ids=["its first request", "a later one"])
def test_a_worker_of_before_the_reload_serves_without_the_limit_and_without_a_word(
    file: Path, limiter: Limiter, clock: Clock, caplog: pytest.LogCaptureFixture, before: int
) -> None:
    """It keeps its configuration until it is replaced: a limiter of its own, as in its process."""
    file.write_text(file.read_text() + '[limits.b]\nrate = "3/h"\nkey = "ip"\n')
    limiter.reload()
    caplog.clear()
    old = Limiter(
        limiter.name, keys=100, clock=clock, a=limiter.config.limits[0], b=limiter.config.limits[1]
    )
    with old:
        app = RateLimitMiddleware(hello, old)
        statuses = [Response(app).status for _ in range(before)]
        file.write_text(file.read_text().replace('[limits.a]\nrate = "2/h"\nkey = "ip"\n', ""))
        limiter.reload()
        caplog.clear()
        late = RateLimitMiddleware(hello, old)  # as when its application is imported only now
        statuses += [Response(each).status for each in (app, late, app, late)[: 4 - before]]
        assert statuses == ["200 OK"] * 3 + ["429 Too Many Requests"], "b holds, a does not"
        file.write_text(file.read_text().replace("limits.b", "limits.c"))
        limiter.reload()
        caplog.clear()
        assert Response(app).status == "200 OK", "none is left"
        assert caplog.messages == []


def test_a_gunicorn_worker_that_opened_the_table_itself_says_so_once(
    limiter: Limiter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SERVER_SOFTWARE", "gunicorn/27.0.1")
    app = RateLimitMiddleware(hello, limiter)
    assert caplog.messages == []  # it may be the master that imports, with --preload
    for _ in range(2):
        assert Response(app).status == "200 OK"
    limiter.reload()
    Response(app)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"opened segment {limiter.path} itself" in record.message
    assert "gunicorn -c python:gunicorn_hooks" in record.message


@pytest.mark.parametrize(("software", "inherited"), [("gunicorn/27.0.1", True), ("", False)])
def test_one_that_inherited_it_or_another_server_says_nothing(
    limiter: Limiter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    software: str,
    inherited: bool,
) -> None:
    monkeypatch.setenv("SERVER_SOFTWARE", software)
    if inherited:
        monkeypatch.setattr(limiter, "_opened_by_pid", 1)
    assert Response(RateLimitMiddleware(hello, limiter)).status == "200 OK"
    assert caplog.messages == []


@pytest.mark.parametrize("others", [True, False])
def test_a_worker_that_was_not_replaced_yet_applies_what_is_left(
    file: Path, limiter: Limiter, clock: Clock, caplog: pytest.LogCaptureFixture, others: bool
) -> None:
    """At a reload it still has the configuration of before, which names what was removed."""
    limits = {"a": "2/h", **({"b": "5/h"} if others else {})}
    before: dict[str, Any] = {
        name: LimitConfig(name, Rate.parse_several(rate), key="ip") for name, rate in limits.items()
    }
    with Limiter(limiter.name, keys=100, clock=clock, **before) as workers:
        app = RateLimitMiddleware(hello, workers)
        statuses = [Response(app).status[:3] for _ in range(3)]
        assert statuses == ["200", "200", "429"]
        file.write_text(file.read_text().replace("limits.a", "limits.c"))
        limiter.reload()
        caplog.clear()
        statuses = [Response(app).status[:3] for _ in range(4)]
        assert statuses == ["200", "200", "200", "429" if others else "200"]
        assert caplog.messages == []
        file.write_text(file.read_text().replace("limits.c", "limits.a"))
        limiter.reload()
        statuses = [Response(app).status[:3] for _ in range(3)]
        assert "429" in statuses, "and what comes back is applied again"
