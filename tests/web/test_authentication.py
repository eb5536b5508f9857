"""Authentication: each attack by itself. test_access_matrix has every route by every role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from functools import partial
from itertools import product
from typing import Annotated, Any

import msgspec
import pytest
import pytest_asyncio
from starlette.requests import Request

from tests.web.asgi_client import HOST, send_request
from tests.web.signed_in_client import FORM, CookieClient, call_with_token, create_token
from tidemill import Secret, Tidemill
from tidemill.auth.audit_log import AuditOutcome
from tidemill.auth.tokens import LAST_USED_RESOLUTION_SECONDS, Tokens
from tidemill.core.filters import MAX_FIELDS
from tidemill.core.redaction import HIDDEN_MARK
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, StreamEvent, User
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock, SeededEntropy
from tidemill.web.asgi import Dashboard
from tidemill.web.rate_limits import (
    FAILED_SIGN_IN_WINDOW_SECONDS,
    MAX_FAILED_SIGN_INS,
    MAX_FAILED_SIGN_INS_TOTAL,
    SignInThrottle,
    client_network,
)
from tidemill.web.request import RouteRequest
from tidemill.web.request_parser import MAX_PUBLIC_BODY_BYTES
from tidemill.web.request_security import EXTRA_HEADERS_KEY, AllowedHosts, is_cross_site
from tidemill.web.streams import RECHECK_SECONDS


class Told(msgspec.Struct):
    limit: list[str]
    api_key: str
    payload: dict[str, str]
    value: str


QUEUES = "/api/v1/queues"
PAUSE = "/api/v1/queues/mail/pause"
SESSION = "tidemill-session-8750"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def made(clock: ManualClock) -> Tidemill:
    entropy = SeededEntropy(5)
    app = Tidemill(store=MemoryStore(clock, entropy), clock=clock, entropy=entropy)
    app.queue("mail")
    return app


@pytest_asyncio.fixture
async def app(clock: ManualClock) -> AsyncIterator[Tidemill]:
    async with made(clock) as app:
        yield app


@pytest.fixture
def server(app: Tidemill) -> Dashboard:
    return Dashboard(app)


FOREIGN = (
    "elsewhere.example",
    "elsewhere.example:8750",
    "127.0.0.1.elsewhere.example",
    "localhost.elsewhere.example",
    "127.0.0.1@elsewhere.example",
    "10.0.0.7:8750",
    "0177.0.0.1",
    "",
    "localhost:8750:1",
    "[::1",
)


async def test_only_allowed_hosts_are_answered(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.ADMIN)
    for host, path in product(
        FOREIGN, (QUEUES, "/", "/healthz", "/static/css/base.css", "/sign-in", "/none")
    ):
        answer = await call_with_token(server, "GET", path, token, host=host)
        assert (answer.status, answer.headers["content-type"]) == (421, "application/problem+json"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
    for host in ("127.0.0.1:8750", "localhost", "LOCALHOST:9000", "[::1]:8750"):
        assert (await call_with_token(server, "GET", QUEUES, token, host=host)).status == 200


async def test_two_host_headers_are_refused(server: Dashboard) -> None:
    statuses: list[int] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", HOST.encode()), (b"host", b"elsewhere.example")]
    scope = {"type": "http", "method": "GET", "path": "/healthz", "raw_path": b"/healthz", "headers": headers}
    await server.starlette({**scope, "query_string": b"", "server": ("127.0.0.1", 8750)}, receive, send)
    assert statuses[0] == 421


async def test_configured_hosts_are_allowed(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_HOSTS", "jobs.example,other.example:8443")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example/jobs")
    async with made(clock) as app:
        server, token = Dashboard(app), await create_token(app, Role.VIEWER)
        found = {
            host: (await call_with_token(server, "GET", QUEUES, token, host=host)).status
            for host in (
                "jobs.example",
                "jobs.example:80",
                "other.example:8443",
                "other.example",
                "mill.example",
            )
        }
        assert [*found.values()] == [200, 200, 200, 421, 200]
        # A proxy that requests by our own address, and a page at the public name.
        own = await call_with_token(server, "GET", QUEUES, token, origin="https://mill.example")
        assert own.status == 200
        # Another service on the same host is foreign.
        for origin in ("https://mill.example:8080", "http://jobs.example:8443", "https://other.example:443"):
            assert (await call_with_token(server, "GET", QUEUES, token, origin=origin)).status == 403, origin
        assert own.headers["strict-transport-security"] == "max-age=31536000"


async def test_hsts_is_sent_only_with_a_public_https_url(app: Tidemill, server: Dashboard) -> None:
    answer = await call_with_token(server, "GET", QUEUES, await create_token(app, Role.VIEWER))
    assert "strict-transport-security" not in answer.headers


async def test_a_filter_has_a_limited_number_of_fields(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.VIEWER)
    for path in ("/api/v1/jobs", "/api/v1/bulk/count"):
        most = "&".join(f"field=a{number}=b" for number in range(MAX_FIELDS))
        assert (await call_with_token(server, "GET", f"{path}?{most}", token)).status == 200
        answer = await call_with_token(server, "GET", f"{path}?{'&'.join(['field=a=b'] * 1000)}", token)
        assert (answer.status, answer.json["field"]) == (422, "fields")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "file://127.0.0.1:8750"},
        {"origin": f"http://{HOST}.elsewhere.example"},
        {"origin": f"http://{HOST}@elsewhere.example"},
        {"origin": "http://[127.0.0.1:8750"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
async def test_requests_of_other_sites_are_refused(
    app: Tidemill, server: Dashboard, headers: dict[str, str]
) -> None:
    token = await create_token(app, Role.ADMIN)
    for path in (QUEUES, "/", "/live/overview", "/sign-in", PAUSE):
        answer = await call_with_token(server, "POST" if path == PAUSE else "GET", path, token, **headers)
        assert answer.status == 403, path
    assert (await app.inspect.queue("mail")).pause is None


@pytest.mark.parametrize(
    ("ours", "theirs", "foreign"),
    [("https", "http", True), ("http", "https", False), ("https", "https", False), ("http", "http", False)],
)
def test_an_http_page_is_foreign_to_an_https_dashboard(
    app: Tidemill, ours: str, theirs: str, *, foreign: bool
) -> None:
    """An http page could be forged on the way. The reverse is fine, because a proxy may terminate TLS."""
    headers = [(b"host", b"localhost:8750"), (b"origin", f"{theirs}://localhost:8750".encode())]
    scope = {"type": "http", "scheme": ours, "path": "/", "query_string": b"", "headers": headers}
    assert is_cross_site(Request(scope), AllowedHosts(app.settings), writes=True) is foreign


async def test_another_site_may_link_but_not_submit_forms(app: Tidemill, server: Dashboard) -> None:
    browser = CookieClient(server)
    await browser.sign_in(await create_token(app, Role.ADMIN))
    followed = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert (await browser.get("/", **followed)).status == 200
    kept, browser.cookies = browser.cookies, {}  # as a browser does with SameSite=Strict
    again = await browser.get("/", **followed)
    assert (again.status, again.headers["refresh"]) == (401, "0")
    browser.cookies = kept
    answer = await browser.post("/queues/mail/pause", {"csrf": await browser.csrf()}, **followed)
    assert answer.status == 403


async def test_a_request_without_a_token_is_refused(server: Dashboard) -> None:
    for shown in ("", "Bearer ", "Bearer tm_wrong", "Basic YTpi", "Bearer", "bearer x y"):
        answer = await call_with_token(server, "GET", QUEUES, authorization=shown)
        assert (answer.status, answer.json["field"]) == (401, "authorization")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_page_redirects_to_the_sign_in_and_back(app: Tidemill, server: Dashboard) -> None:
    browser = CookieClient(server)
    answer = await browser.get("/queues/a%2Fb?next=//x")
    assert answer.status == 303
    where = answer.headers["location"]
    assert where == "/sign-in?next=/queues/a%252Fb%3Fnext%3D//x"
    assert (await browser.get(where)).status == 200
    done = await browser.sign_in(await create_token(app, Role.VIEWER), next="/queues")
    assert (done.status, done.headers["location"]) == (303, "/queues")
    assert (await browser.get("/queues")).status == 200


async def test_the_sign_in_never_redirects_to_another_site(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.VIEWER)
    for wrong in ("//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "/\tx"):
        answer = await CookieClient(server).sign_in(token, next=wrong)
        assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_the_cookie_is_http_only_and_strict(app: Tidemill, server: Dashboard) -> None:
    answer = await CookieClient(server).sign_in(await create_token(app, Role.VIEWER))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    behind = await send_request(
        server.starlette,
        "POST",
        "/sign-in",
        headers={"content-type": FORM, "host": "localhost"},
        body=f"token={await create_token(app, Role.VIEWER)}".encode(),
        prefix="/jobs",
    )
    assert "Path=/jobs" in behind.headers["set-cookie"]


async def test_the_cookie_is_secure_with_https(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example")
    async with made(clock) as app:
        answer = await CookieClient(Dashboard(app)).sign_in(await create_token(app, Role.VIEWER))
        assert answer.headers["set-cookie"].endswith("; Secure")


async def test_opening_a_link_does_not_use_it(app: Tidemill, server: Dashboard) -> None:
    secret = await app.auth.links.create("ann", Role.OPERATOR)
    browser = CookieClient(server)
    for _ in range(3):
        page = await browser.get(f"/sign-in/{secret}")
        assert (page.status, browser.cookies) == (200, {})
    assert (await browser.post(f"/sign-in/{secret}")).status == 303
    assert (await browser.get("/")).status == 200
    again = CookieClient(server)
    gone = await again.post(f"/sign-in/{secret}")
    assert (gone.status, again.cookies) == (410, {})
    assert "or belongs to another store" in gone.text
    assert "tidemill link --app module:app<" in gone.text
    app.application_spec = "music"
    assert "tidemill link --app music<" in (await again.post(f"/sign-in/{secret}")).text
    [token] = await app.auth.tokens.list()
    assert (token.name, token.role, token.by_link) == ("ann", Role.OPERATOR, True)
    await app.auth.tokens.revoke(token.id)
    assert (await browser.get("/")).status == 303


async def test_sign_out_ends_the_session_and_no_other(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.VIEWER)
    one, other = CookieClient(server), CookieClient(server)
    await one.sign_in(token)
    await other.sign_in(token)
    stolen = dict(one.cookies)
    assert 'action="/sign-out"' in (await one.get("/")).text
    assert (await one.post("/sign-out", {"csrf": await one.csrf()})).status == 303
    assert one.cookies == {}
    one.cookies = stolen
    assert (await one.get("/")).status == 303
    assert (await other.get("/")).status == 200


async def test_a_session_ends_after_some_hours_and_with_its_token(
    app: Tidemill, server: Dashboard, clock: ManualClock
) -> None:
    browser = CookieClient(server)
    token = await create_token(app, Role.VIEWER)
    await browser.sign_in(token)
    clock.advance(app.settings.value("web.session"))
    assert (await browser.get("/")).status == 303
    await browser.sign_in(token)
    assert (await browser.get("/")).status == 200
    await app.auth.tokens.revoke("ann")
    assert (await browser.get("/")).status == 303


async def test_a_write_by_cookie_needs_the_csrf_token(app: Tidemill, server: Dashboard) -> None:
    """The write needs the CSRF token of its own session; a request with a token needs none."""
    browser, other = CookieClient(server), CookieClient(server)
    await browser.sign_in(await create_token(app, Role.OPERATOR))
    await other.sign_in(await create_token(app, Role.OPERATOR, "bo"))
    right = await browser.csrf()
    for wrong in ({}, {"csrf": ""}, {"csrf": await other.csrf()}, {"csrf": right[:-1]}, {"csrf": "é"}):
        assert (await browser.post("/queues/mail/pause", wrong)).status == 403
        assert (await app.inspect.queue("mail")).pause is None
    assert (await browser.post("/queues/mail/pause", {"csrf": right})).status == 303
    assert (await app.inspect.queue("mail")).pause is not None
    assert (await browser.post("/queues/mail/resume", x_csrf=right)).status == 303
    json = await browser.post(PAUSE, content_type="application/json", x_csrf="wrong")
    assert json.status == 403


async def test_roles(app: Tidemill, server: Dashboard) -> None:
    for role, paused, tokens in ((Role.VIEWER, 403, 403), (Role.OPERATOR, 200, 403), (Role.ADMIN, 200, 200)):
        token = await create_token(app, role)
        assert (await call_with_token(server, "GET", QUEUES, token)).status == 200
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        answer = await send_request(server.starlette, "POST", PAUSE, headers=headers, body=b"{}")
        assert answer.status == paused, answer.text
        assert (await call_with_token(server, "GET", "/api/v1/tokens", token)).status == tokens


async def test_failed_sign_ins_are_throttled(app: Tidemill, server: Dashboard, clock: ManualClock) -> None:
    """Concurrent and sequential failures count alike; a valid token still works."""
    token = await create_token(app, Role.ADMIN)
    guesser = CookieClient(server, "10.0.0.1")
    response = await asyncio.gather(
        *(guesser.sign_in(f"guess {number}") for number in range(MAX_FAILED_SIGN_INS + 3))
    )
    assert sorted(answer.status for answer in response) == [401] * MAX_FAILED_SIGN_INS + [429] * 3
    assert int(response[-1].headers["retry-after"]) > 0
    assert (await guesser.sign_in(token)).status == 303
    assert (await guesser.sign_in("guess")).status == 429
    clock.advance(float(response[-1].headers["retry-after"]))
    assert (await guesser.sign_in("guess")).status == 401


async def test_successful_sign_ins_are_not_throttled(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.VIEWER)
    for _ in range(MAX_FAILED_SIGN_INS * 3):
        assert (await CookieClient(server).sign_in(token)).status == 303


async def test_failures_of_others_do_not_block_a_sign_in(app: Tidemill, server: Dashboard) -> None:
    """Failures of any number of addresses add a limited number of log entries, and a valid secret still
    works."""
    token, link = await create_token(app, Role.VIEWER), await app.auth.links.create("bo", Role.VIEWER)
    statuses = [
        (await CookieClient(server, f"10.0.{number // 200}.{number % 200}").sign_in("guess")).status
        for number in range(MAX_FAILED_SIGN_INS_TOTAL + 1)
    ]
    assert statuses[-2:] == [401, 429]
    entries = await app.auth.audit.page(1000, outcome=AuditOutcome.REFUSED)
    assert len(entries.entries) == MAX_FAILED_SIGN_INS_TOTAL
    for address in ("10.0.0.1", "10.9.9.9"):
        assert (await CookieClient(server, address).sign_in(token)).status == 303
    assert (await CookieClient(server, "10.9.9.9").post(f"/sign-in/{link}")).status == 303


def test_failures_are_counted_per_address(clock: ManualClock) -> None:
    throttle = SignInThrottle(clock)
    for number in range(MAX_FAILED_SIGN_INS_TOTAL):
        throttle.failed(f"10.0.{number // 200}.{number % 200}")
    for _ in range(MAX_FAILED_SIGN_INS):
        with pytest.raises(HTTPError):
            throttle.failed("10.9.9.9")
    clock.advance(FAILED_SIGN_IN_WINDOW_SECONDS / MAX_FAILED_SIGN_INS_TOTAL * MAX_FAILED_SIGN_INS)
    for _ in range(MAX_FAILED_SIGN_INS):
        throttle.failed("10.9.9.9")


def test_failures_are_counted_by_the_network_of_an_ipv6_address(clock: ManualClock) -> None:
    throttle = SignInThrottle(clock)
    for number in range(MAX_FAILED_SIGN_INS):
        throttle.failed(f"2001:db8:0:7::{number}")
    with pytest.raises(HTTPError):
        throttle.failed("2001:db8:0:7:ffff:ffff:ffff:ffff")
    throttle.failed("2001:db8:0:8::1")
    assert client_network("::ffff:10.0.0.1") == client_network("10.0.0.1") == "10.0.0.1"
    assert client_network("fe80::1%eth0") == client_network("fe80::2%eth1") == "fe80::/64"
    assert [client_network(None), client_network("a-socket")] == ["", "a-socket"]


async def test_wrong_tokens_neither_fill_the_log_nor_block_sign_ins(app: Tidemill, server: Dashboard) -> None:
    token = await create_token(app, Role.VIEWER)
    for _ in range(MAX_FAILED_SIGN_INS * 4):
        assert (await call_with_token(server, "GET", QUEUES, f"tm_{'a' * 12}_{'b' * 32}")).status == 401
    entries = (await app.auth.audit.page(outcome=AuditOutcome.REFUSED)).entries
    assert len(entries) == MAX_FAILED_SIGN_INS
    assert {(entry.action, entry.reason) for entry in entries} == {
        ("request with a token", "the token is invalid, expired or revoked")
    }
    assert (await call_with_token(server, "GET", QUEUES, token)).status == 200
    assert (await CookieClient(server).sign_in(token)).status == 303


async def test_requests_per_token_are_limited(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "6")
    async with made(clock) as app:
        server, token, other = (
            Dashboard(app),
            await create_token(app, Role.VIEWER),
            await create_token(app, Role.VIEWER),
        )
        response = await asyncio.gather(*(call_with_token(server, "GET", QUEUES, token) for _ in range(7)))
        assert sorted(answer.status for answer in response) == [200] * 6 + [429]
        first = response[0].headers
        assert (first["ratelimit-policy"], first["ratelimit"]) == ('"token";q=6;w=60', '"token";r=5;t=10')
        [refused] = [answer for answer in response if answer.status == 429]
        assert refused.headers["retry-after"] == "10"
        assert (await call_with_token(server, "GET", QUEUES, other)).status == 200
        clock.advance(10.0)
        assert (await call_with_token(server, "GET", QUEUES, token)).status == 200
        assert (await call_with_token(server, "GET", QUEUES, token)).status == 429


async def test_a_large_body_is_refused_and_an_anonymous_body_not_read(
    app: Tidemill, server: Dashboard
) -> None:
    body = b"x" * (10 * 1024 * 1024 + 1)
    headers = {"content-type": "application/json"}
    assert (
        await send_request(server.starlette, "POST", "/api/v1/jobs", headers=headers, body=body)
    ).status == 401
    headers["authorization"] = f"Bearer {await create_token(app, Role.ADMIN)}"
    assert (
        await send_request(server.starlette, "POST", "/api/v1/jobs", headers=headers, body=body)
    ).status == 413
    form = await send_request(
        server.starlette,
        "POST",
        "/sign-in",
        headers={"content-type": FORM},
        body=b"token=" + body[:MAX_PUBLIC_BODY_BYTES],
    )
    assert form.status == 413


async def test_security_headers(app: Tidemill, server: Dashboard) -> None:
    browser = CookieClient(server)
    await browser.sign_in(await create_token(app, Role.VIEWER))
    for path in ("/", "/none", "/sign-in", QUEUES, "/healthz"):
        headers = (await browser.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "'unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store", path
    static = (await browser.get("/static/css/base.css")).headers
    assert static["x-content-type-options"] == "nosniff"
    assert "no-store" not in static.get("cache-control", "")


async def test_changes_are_in_the_audit_log(app: Tidemill, server: Dashboard) -> None:
    browser = CookieClient(server, "10.0.0.9")
    await browser.sign_in("wrong")
    await browser.sign_in(await create_token(app, Role.OPERATOR))
    csrf = await browser.csrf()
    await browser.post("/queues/mail/pause", {"csrf": csrf, "reason": "password=hunter22"})
    await browser.post("/queues/mail/empty", {"csrf": csrf, "confirm": "mail"})
    await browser.post("/sign-out", {"csrf": csrf})
    entries = (await app.auth.audit.page()).entries
    assert [(entry.user, entry.action, entry.outcome) for entry in reversed(entries)] == [
        ("nobody", "sign-in by token", "refused"),
        ("ann", "sign-in by token", "done"),
        ("ann", "POST /queues/{queue}/pause", "done"),
        ("ann", "POST /queues/{queue}/empty", "refused"),
        ("ann", "sign-out", "done"),
    ]
    assert {entry.address for entry in entries} == {"10.0.0.9"}
    paused = entries[2]
    assert paused.details["queue"] == "mail"
    assert "hunter22" not in str(entries)


async def test_the_audit_log_has_the_body_without_payloads_and_secrets(
    app: Tidemill, server: Dashboard
) -> None:
    async def handle(asked: RouteRequest) -> None: ...

    for path in ("/api/own/lists", "/api/own/{name}"):
        app.web.route("POST", path, role=Role.OPERATOR, summary="Take.", body=Told)(handle)
    server = Dashboard(app)
    headers = {
        "authorization": f"Bearer {await create_token(app, Role.OPERATOR)}",
        "content-type": "application/json",
    }
    body = (
        b'{"limit": ["a", "b"], "api_key": "hunter22", "payload": {"pin": "hunter22"}, "value": "hunter22"}'
    )
    lists = body.replace(b'"value": "hunter22"', b'"value": ""')
    await send_request(server.starlette, "POST", "/api/own/lists", headers=headers, body=lists)
    await send_request(server.starlette, "POST", "/api/own/smtp_password", headers=headers, body=body)
    secret, plain = (await app.auth.audit.page()).entries
    assert plain.details == {"limit": '["a","b"]', "api_key": HIDDEN_MARK}
    assert secret.details == {"name": "smtp_password"}


async def test_the_audit_log_has_no_payload_of_a_scheduled_job(clock: ManualClock) -> None:
    async with made(clock) as app:

        @app.task(name="pay")
        async def pay(pin: Annotated[str, Secret], to: str) -> None: ...

        server, token = Dashboard(app), await create_token(app, Role.ADMIN)
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        job = {"task": "pay", "payload": {"pin": "canary", "to": "ann"}}
        body = msgspec.json.encode({"job": job, "every": 60})
        answer = await send_request(
            server.starlette, "PUT", "/api/v1/schedules/nightly", headers=headers, body=body
        )
        assert answer.status == 200, answer.text
        [entry] = (await app.auth.audit.page()).entries
    assert entry.details["job"] == '{"task":"pay"}'
    assert "canary" not in f"{entry} {answer.text}"


async def test_last_use_is_noted_and_written_later(
    app: Tidemill, server: Dashboard, clock: ManualClock
) -> None:
    token = await create_token(app, Role.VIEWER)
    await call_with_token(server, "GET", QUEUES, token)
    for _ in range(10):  # pending work may finish
        await asyncio.sleep(0)
    assert [view.used for view in await app.auth.tokens.list()] == [None], "reading writes nothing"
    await server.authenticator.token_usage.write()
    assert [view.used for view in await app.auth.tokens.list()] == [clock.wall()]
    clock.advance(LAST_USED_RESOLUTION_SECONDS / 2)
    await call_with_token(server, "GET", QUEUES, token)
    await server.authenticator.token_usage.write()
    assert [view.used for view in await app.auth.tokens.list()] == [
        clock.wall() - LAST_USED_RESOLUTION_SECONDS / 2
    ]
    server.authenticator.token_usage.close()


async def test_a_stream_ends_when_its_viewer_loses_access(
    app: Tidemill, server: Dashboard, clock: ManualClock
) -> None:
    closed: list[bool] = []

    async def endless() -> AsyncIterator[StreamEvent]:
        try:
            while True:
                clock.advance(RECHECK_SECONDS)
                yield StreamEvent("tick", "")
        finally:
            closed.append(True)

    headers = [(b"authorization", f"Bearer {await create_token(app, Role.VIEWER)}".encode())]
    request = Request(
        {"type": "http", "method": "GET", "path": "/", "headers": headers, EXTRA_HEADERS_KEY: []}
    )
    [route] = [each for each in server.routes if each.path == "/api/v1/events"]
    seen = 0
    user = await server.authenticator.authorize(request, route)
    stream = server.streams.follow(
        endless(), partial(server.authenticator.still_allows, request, route, user), "ann"
    )
    async for _ in stream:
        seen += 1
        if seen == 3:
            await app.auth.tokens.revoke("ann")
    assert (seen, closed) == (3, [True])
    assert RECHECK_SECONDS <= 1.0


async def test_streams_of_one_token_share_the_access_check(
    app: Tidemill, server: Dashboard, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []
    who_is = Tokens.user

    async def counted(tokens: Tokens, token: str) -> User | None:
        checks.append(token)
        return await who_is(tokens, token)

    monkeypatch.setattr(Tokens, "user", counted)
    headers = [(b"authorization", f"Bearer {await create_token(app, Role.VIEWER)}".encode())]
    request = Request(
        {"type": "http", "method": "GET", "path": "/", "headers": headers, EXTRA_HEADERS_KEY: []}
    )
    [route] = [each for each in server.routes if each.path == "/api/v1/events"]
    user = User("ann", Role.VIEWER)
    assert all([await server.authenticator.still_allows(request, route, user) for _ in range(50)])
    assert len(checks) == 1
    await app.auth.tokens.revoke("ann")
    clock.advance(1.0)
    assert not await server.authenticator.still_allows(request, route, user)


class TestOwnAuth:
    """The application's hook replaces the sign-in; all other checks stay."""

    async def _who(self, request: Request) -> User | None:
        name = request.cookies.get("their-session")
        return User(name, Role.OPERATOR) if name else None

    async def test_it_replaces_the_sign_in(self, app: Tidemill) -> None:
        server = Dashboard(app, self._who)
        browser = CookieClient(server)
        assert (await browser.get("/")).status == 401
        for path in ("/sign-in", "/sign-in/tml_x"):
            assert (await browser.get(path)).status == 404
        ours = await call_with_token(server, "GET", QUEUES, await create_token(app, Role.ADMIN))
        assert ours.status == 401
        browser.cookies["their-session"] = "ann"
        shown = await browser.get("/")
        assert shown.status == 200
        assert "/sign-out" not in shown.text

    async def test_host_origin_role_and_csrf_are_checked(self, app: Tidemill) -> None:
        browser = CookieClient(Dashboard(app, self._who))
        browser.cookies["their-session"] = "ann"
        assert (await browser.get("/", host="elsewhere.example")).status == 421
        assert (await browser.get("/", origin="https://elsewhere.example")).status == 403
        assert (await browser.get("/api/v1/tokens")).status == 403
        assert (await browser.post("/queues/mail/pause")).status == 403
        assert (await browser.post("/queues/mail/pause", {"csrf": "guess"})).status == 403
        assert (await app.inspect.queue("mail")).pause is None
        csrf = await browser.csrf()
        assert (await browser.post("/queues/mail/pause", {"csrf": csrf})).status == 303
        assert (await app.inspect.queue("mail")).pause is not None
        [entry] = [e for e in (await app.auth.audit.page()).entries if e.outcome == "done"]
        assert (entry.user, entry.token) == ("ann", None)

    async def test_a_public_user_is_not_signed_in(self, app: Tidemill) -> None:
        async def anybody(_: Request) -> User:
            return User("x", Role.PUBLIC)

        assert (await call_with_token(Dashboard(app, anybody), "GET", QUEUES)).status == 401
