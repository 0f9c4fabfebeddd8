"""The middleware, in process: what passes, what a refusal looks like, what a failure does."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from shmlimit import ConfigError, LimitConfig, Limiter, Rate
from shmlimit.http.wsgi import DECISIONS, RateLimitMiddleware
from tests.conftest import Clock

NS_PER_S = 1_000_000_000

Open = Callable[..., Limiter]


@pytest.fixture
def limiter_of(segment_name: str, clock: Clock) -> Iterator[Open]:
    """Opens a limiter of the test's own: a rate, and a key ("ip" unless given), by limit name."""
    opened: list[Limiter] = []

    def open_limiter(**limits: tuple[str, str | None] | LimitConfig) -> Limiter:
        configs: dict[str, Any] = {
            name: value if isinstance(value, LimitConfig) else by(name, *value)
            for name, value in limits.items()
        }
        opened.append(Limiter(segment_name, keys=1000, workers=2, clock=clock, **configs))
        return opened[0]

    yield open_limiter
    for limiter in opened:
        limiter.close()


def by(name: str, rate: str, key: str | None = "ip", mode: str = "enforce") -> LimitConfig:
    return LimitConfig(name, Rate.parse_several(rate), key, mode)


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


class Response:
    def __init__(self, app: WSGIApplication, **environ: Any) -> None:
        """Asks `app`. REMOTE_ADDR is 192.0.2.1 unless given."""
        self.environ: dict[str, Any] = {"QUERY_STRING": "", "REMOTE_ADDR": "192.0.2.1", **environ}
        setup_testing_defaults(self.environ)
        self.environ["wsgi.input"] = io.BytesIO()
        answer = app(self.environ, self._start)
        try:
            self.body = b"".join(answer)
        finally:
            getattr(answer, "close", lambda: None)()

    def _start(self, status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        self.status = status
        self.headers = dict(headers)
        return lambda written: None


def test_what_the_limit_allows_reaches_the_application(limiter_of: Open) -> None:
    app = validator(RateLimitMiddleware(validator(hello), limiter_of(a=("2/s", "ip"))))
    response = Response(app)
    assert (response.status, response.body) == ("200 OK", b"hello")
    (decision,) = response.environ[DECISIONS]
    assert (decision.allowed, decision.name, decision.remaining) == (True, "a", 1)


def test_a_refusal_is_429_with_retry_after_and_one_line(limiter_of: Open) -> None:
    app = validator(RateLimitMiddleware(hello, limiter_of(a=("1/m", "ip"))))
    assert Response(app).status == "200 OK"
    refused = Response(app)
    assert refused.status == "429 Too Many Requests"
    assert refused.headers["Retry-After"] == "60"
    assert refused.body == b"Too many requests. Try again in 60 s.\n"
    assert refused.headers["Content-Length"] == str(len(refused.body))
    assert [decision.allowed for decision in refused.environ[DECISIONS]] == [False]


def test_a_refused_request_does_not_reach_the_application(limiter_of: Open) -> None:
    reached = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        reached.append(environ)
        return hello(environ, start_response)

    limited = RateLimitMiddleware(app, limiter_of(a=("1/m", "ip")))
    Response(limited)
    Response(limited)
    assert len(reached) == 1


def test_a_refused_head_has_the_headers_and_no_body(limiter_of: Open) -> None:
    app = validator(RateLimitMiddleware(hello, limiter_of(a=("1/m", "ip"))))
    Response(app)
    refused = Response(app, REQUEST_METHOD="HEAD")
    assert refused.status == "429 Too Many Requests"
    assert refused.body == b""
    assert int(refused.headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("wait_ns", "stated_s"),
    [(1, 1), (NS_PER_S, 1), (NS_PER_S + 1, 2), (3 * NS_PER_S - 1, 3), (60 * NS_PER_S, 60)],
)
def test_retry_after_is_in_whole_seconds_rounded_up(
    limiter_of: Open, clock: Clock, wait_ns: int, stated_s: int
) -> None:
    app = RateLimitMiddleware(hello, limiter_of(a=("1/m", "ip")))
    Response(app)
    clock.ns += 60 * NS_PER_S - wait_ns
    refused = Response(app)
    assert refused.status.startswith("429")
    assert refused.headers["Retry-After"] == str(stated_s)
    clock.ns += stated_s * NS_PER_S
    assert Response(app).status == "200 OK"


def test_each_limit_counts_by_its_own_key(limiter_of: Open) -> None:
    limiter = limiter_of(per_ip=("100/m", "ip"), per_key=("1/m", "header:X-Api-Key"))
    app = RateLimitMiddleware(hello, limiter)
    assert Response(app, HTTP_X_API_KEY="a").status == "200 OK"
    assert Response(app, HTTP_X_API_KEY="b").status == "200 OK"
    assert Response(app, HTTP_X_API_KEY="a").status.startswith("429")
    assert limiter["per_ip"].peek("ip:192.0.2.1", 0).remaining == 98


def test_leaving_the_header_out_is_no_way_around_the_limit(limiter_of: Open) -> None:
    app = RateLimitMiddleware(hello, limiter_of(per_key=("1/m", "header:X-Api-Key")))
    assert Response(app).status == "200 OK"
    assert Response(app, HTTP_X_API_KEY="").status.startswith("429")
    assert Response(app, REMOTE_ADDR="192.0.2.2").status == "200 OK"


@pytest.mark.parametrize("narrow", ["first", "last"])
def test_a_refusal_takes_from_no_limit(limiter_of: Open, narrow: str) -> None:
    rates = {"first": ("100/m", "ip"), "last": ("100/m", "ip"), narrow: ("1/m", "ip")}
    limiter = limiter_of(**rates)
    app = RateLimitMiddleware(hello, limiter)
    assert Response(app).status == "200 OK"
    for _ in range(10):
        assert Response(app).status.startswith("429")
    wide = "last" if narrow == "first" else "first"
    assert limiter[wide].peek("ip:192.0.2.1", 0).remaining == 99
    assert limiter.counters()[narrow]["denied"] == 10
    assert limiter.counters()[wide]["denied"] == 0


def test_of_several_refusals_the_longest_wait_is_stated(limiter_of: Open) -> None:
    limiter = limiter_of(short=("1/m", "ip"), long=("1/h", "ip"))
    app = RateLimitMiddleware(hello, limiter)
    Response(app)
    refused = Response(app)
    assert refused.headers["Retry-After"] == "3600"
    assert [decision.name for decision in refused.environ[DECISIONS]] == ["short", "long"]
    assert limiter.counters()["short"]["denied"] == limiter.counters()["long"]["denied"] == 1


def test_decisions_of_all_limits_reach_the_application(limiter_of: Open) -> None:
    limiter = limiter_of(a=("5/m", "ip"), b=("9/m", "ip"), other=("1/m", None))
    response = Response(RateLimitMiddleware(hello, limiter))
    stated = [(decision.name, decision.remaining) for decision in response.environ[DECISIONS]]
    assert stated == [("a", 4), ("b", 8)]


def test_shadow_mode_lets_pass_and_counts(limiter_of: Open) -> None:
    limiter = limiter_of(a=by("a", "1/m", mode="shadow"), b=("100/m", "ip"))
    app = RateLimitMiddleware(hello, limiter)
    responses = [Response(app) for _ in range(3)]
    assert [response.status for response in responses] == ["200 OK"] * 3
    shadows = [response.environ[DECISIONS][0].shadow for response in responses]
    assert shadows == [False, True, True]
    assert limiter.counters()["a"]["shadow_denied"] == 2


def test_a_limit_that_is_off_refuses_and_counts_nothing(limiter_of: Open) -> None:
    limiter = limiter_of(a=by("a", "1/m", mode="off"))
    app = RateLimitMiddleware(hello, limiter)
    responses = [Response(app) for _ in range(3)]
    assert [response.status for response in responses] == ["200 OK"] * 3
    assert all(response.environ[DECISIONS][0].allowed for response in responses)
    assert limiter.counters()["a"] == dict.fromkeys(limiter.counters()["a"], 0)


def test_without_a_keyed_limit_the_application_does_not_start(limiter_of: Open) -> None:
    limiter = limiter_of(a=("1/m", None))
    with pytest.raises(ConfigError, match='give one key = "ip"'):
        RateLimitMiddleware(hello, limiter)


def test_a_failure_lets_the_request_pass_and_is_logged_once(
    limiter_of: Open, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = limiter_of(a=("1/m", "ip"))
    app = RateLimitMiddleware(hello, limiter)
    limiter.close()
    with caplog.at_level(logging.ERROR, logger="shmlimit"):
        responses = [Response(app) for _ in range(3)]
    assert [response.status for response in responses] == ["200 OK"] * 3
    assert [response.environ[DECISIONS] for response in responses] == [()] * 3
    (record,) = caplog.records
    assert "LimiterClosed" in record.message


def test_each_kind_of_failure_is_logged(
    limiter_of: Open,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = RateLimitMiddleware(hello, limiter_of(a=("1/m", "ip")))
    for error in (OSError("no clock"), RuntimeError("no time"), OSError("again no clock")):
        monkeypatch.setattr(Clock, "__call__", _raiser(error))
        assert Response(app).status == "200 OK"
    assert len(caplog.records) == 2


def _raiser(error: Exception) -> Callable[[Clock], int]:
    def read(clock: Clock) -> int:
        raise error

    return read


def test_an_error_of_the_application_is_its_own(limiter_of: Open) -> None:
    def broken(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise KeyError("of the application")

    with pytest.raises(KeyError, match="of the application"):
        Response(RateLimitMiddleware(broken, limiter_of(a=("1/m", "ip"))))


def test_the_iterable_and_start_response_are_the_applications(limiter_of: Open) -> None:
    answer: Iterable[bytes] = iter([b"hello"])
    given: list[object] = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        given.append(start_response)
        return answer

    def start_response(*arguments: object) -> Callable[[bytes], object]:
        raise AssertionError("nobody calls it here")

    limited = RateLimitMiddleware(app, limiter_of(a=("1/m", "ip")))
    assert limited({"REMOTE_ADDR": "192.0.2.1"}, start_response) is answer
    assert given == [start_response]


def test_without_a_limiter_the_configuration_file_is_used(
    segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shmlimit.toml"
    file.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = 1000\n[limits.a]\nrate = "1/h"\nkey = "ip"\n'
    )
    monkeypatch.setenv("SHMLIMIT_CONFIG", str(file))
    app = RateLimitMiddleware(hello)
    again = RateLimitMiddleware(hello)
    try:
        assert app.limiter is again.limiter
        assert [Response(app).status, Response(again).status[:3]] == ["200 OK", "429"]
    finally:
        assert app.limiter
        app.limiter.close()
