"""The gate: each way in that is none, each by itself. Every route by everybody is in test_matrix."""

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

from tests.web.asgi import HOST, ask
from tests.web.signed import FORM, Browser, call, token_of
from tidemill import Secret, Tidemill
from tidemill.access.audit import Outcome
from tidemill.access.tokens import COARSE, Tokens
from tidemill.core.filters import MAX_FIELDS
from tidemill.core.secrecy import HIDDEN
from tidemill.seam.answers import Event
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role, Who
from tidemill.stores.memory import MemoryStore
from tidemill.testing.manual import ManualClock, SeededEntropy
from tidemill.web.asked import Asked
from tidemill.web.guard import MORE
from tidemill.web.hosts import Hosts
from tidemill.web.origins import is_foreign
from tidemill.web.reading import OF_ANYBODY
from tidemill.web.serving import Server
from tidemill.web.streams import LOOK_AGAIN
from tidemill.web.throttle import MINUTES, OF_ALL, TRIES, Throttle, network_of


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
def server(app: Tidemill) -> Server:
    return Server(app)


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


async def test_only_names_of_ours_are_answered(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.ADMIN)
    for host, path in product(
        FOREIGN, (QUEUES, "/", "/healthz", "/static/css/base.css", "/sign-in", "/none")
    ):
        answer = await call(server, "GET", path, token, host=host)
        assert (answer.status, answer.headers["content-type"]) == (421, "application/problem+json"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
    for host in ("127.0.0.1:8750", "localhost", "LOCALHOST:9000", "[::1]:8750"):
        assert (await call(server, "GET", QUEUES, token, host=host)).status == 200


async def test_two_hosts_are_none(server: Server) -> None:
    said: list[int] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message.get("status", 0))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", HOST.encode()), (b"host", b"elsewhere.example")]
    scope = {"type": "http", "method": "GET", "path": "/healthz", "raw_path": b"/healthz", "headers": headers}
    await server.starlette({**scope, "query_string": b"", "server": ("127.0.0.1", 8750)}, receive, send)
    assert said[0] == 421


async def test_names_that_were_set(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_HOSTS", "jobs.example,other.example:8443")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example/jobs")
    async with made(clock) as app:
        server, token = Server(app), await token_of(app, Role.VIEWER)
        found = {
            host: (await call(server, "GET", QUEUES, token, host=host)).status
            for host in (
                "jobs.example",
                "jobs.example:80",
                "other.example:8443",
                "other.example",
                "mill.example",
            )
        }
        assert [*found.values()] == [200, 200, 200, 421, 200]
        # A proxy that asks by our own address, and a page at the name people know.
        own = await call(server, "GET", QUEUES, token, origin="https://mill.example")
        assert own.status == 200
        # Another service on the same host is not ours.
        for origin in ("https://mill.example:8080", "http://jobs.example:8443", "https://other.example:443"):
            assert (await call(server, "GET", QUEUES, token, origin=origin)).status == 403, origin
        assert own.headers["strict-transport-security"] == "max-age=31536000"


async def test_browsers_are_told_of_https_only_where_people_use_it(app: Tidemill, server: Server) -> None:
    answer = await call(server, "GET", QUEUES, await token_of(app, Role.VIEWER))
    assert "strict-transport-security" not in answer.headers


async def test_a_filter_takes_so_many_fields(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.VIEWER)
    for path in ("/api/v1/jobs", "/api/v1/bulk/count"):
        most = "&".join(f"field=a{number}=b" for number in range(MAX_FIELDS))
        assert (await call(server, "GET", f"{path}?{most}", token)).status == 200
        answer = await call(server, "GET", f"{path}?{'&'.join(['field=a=b'] * 1000)}", token)
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
async def test_pages_of_others_get_nothing(app: Tidemill, server: Server, headers: dict[str, str]) -> None:
    token = await token_of(app, Role.ADMIN)
    for path in (QUEUES, "/", "/live/overview", "/sign-in", PAUSE):
        answer = await call(server, "POST" if path == PAUSE else "GET", path, token, **headers)
        assert answer.status == 403, path
    assert (await app.inspect.queue("mail")).pause is None


@pytest.mark.parametrize(
    ("ours", "theirs", "foreign"),
    [("https", "http", True), ("http", "https", False), ("https", "https", False), ("http", "http", False)],
)
def test_a_page_without_tls_is_not_ours_where_we_have_it(
    app: Tidemill, ours: str, theirs: str, *, foreign: bool
) -> None:
    """Anybody on the way may have written it. The other way round somebody before us ends TLS."""
    headers = [(b"host", b"localhost:8750"), (b"origin", f"{theirs}://localhost:8750".encode())]
    scope = {"type": "http", "scheme": ours, "path": "/", "query_string": b"", "headers": headers}
    assert is_foreign(Request(scope), Hosts(app.settings), writes=True) is foreign


async def test_a_link_elsewhere_may_lead_here_but_a_form_there_may_not(app: Tidemill, server: Server) -> None:
    browser = Browser(server)
    await browser.sign_in(await token_of(app, Role.ADMIN))
    followed = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert (await browser.get("/", **followed)).status == 200
    kept, browser.cookies = browser.cookies, {}  # as a browser does with SameSite=Strict
    again = await browser.get("/", **followed)
    assert (again.status, again.headers["refresh"]) == (401, "0")
    browser.cookies = kept
    answer = await browser.post("/queues/mail/pause", {"csrf": await browser.csrf()}, **followed)
    assert answer.status == 403


async def test_without_a_token_nothing(server: Server) -> None:
    for shown in ("", "Bearer ", "Bearer tm_wrong", "Basic YTpi", "Bearer", "bearer x y"):
        answer = await call(server, "GET", QUEUES, authorization=shown)
        assert (answer.status, answer.json["field"]) == (401, "authorization")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_page_leads_to_the_sign_in_and_back(app: Tidemill, server: Server) -> None:
    browser = Browser(server)
    answer = await browser.get("/queues/a%2Fb?next=//x")
    assert answer.status == 303
    where = answer.headers["location"]
    assert where == "/sign-in?next=/queues/a%252Fb%3Fnext%3D//x"
    assert (await browser.get(where)).status == 200
    done = await browser.sign_in(await token_of(app, Role.VIEWER), next="/queues")
    assert (done.status, done.headers["location"]) == (303, "/queues")
    assert (await browser.get("/queues")).status == 200


async def test_nobody_is_led_elsewhere(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.VIEWER)
    for wrong in ("//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "/\tx"):
        answer = await Browser(server).sign_in(token, next=wrong)
        assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_the_cookie_is_for_our_pages_only(app: Tidemill, server: Server) -> None:
    answer = await Browser(server).sign_in(await token_of(app, Role.VIEWER))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    behind = await ask(
        server.starlette,
        "POST",
        "/sign-in",
        headers={"content-type": FORM, "host": "localhost"},
        body=f"token={await token_of(app, Role.VIEWER)}".encode(),
        prefix="/jobs",
    )
    assert "Path=/jobs" in behind.headers["set-cookie"]


async def test_it_is_sent_over_tls_only_where_people_use_that(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example")
    async with made(clock) as app:
        answer = await Browser(Server(app)).sign_in(await token_of(app, Role.VIEWER))
        assert answer.headers["set-cookie"].endswith("; Secure")


async def test_a_link_is_not_used_by_being_looked_at(app: Tidemill, server: Server) -> None:
    secret = await app.access.links.create("ann", Role.OPERATOR)
    browser = Browser(server)
    for _ in range(3):
        page = await browser.get(f"/sign-in/{secret}")
        assert (page.status, browser.cookies) == (200, {})
    assert (await browser.post(f"/sign-in/{secret}")).status == 303
    assert (await browser.get("/")).status == 200
    again = Browser(server)
    gone = await again.post(f"/sign-in/{secret}")
    assert (gone.status, again.cookies) == (410, {})
    assert "good only where its own store is served" in gone.text
    assert "tidemill link --app module:app<" in gone.text
    app.loaded_as = "music"
    assert "tidemill link --app music<" in (await again.post(f"/sign-in/{secret}")).text
    [token] = await app.access.tokens.list()
    assert (token.name, token.role, token.by_link) == ("ann", Role.OPERATOR, True)
    await app.access.tokens.revoke(token.id)
    assert (await browser.get("/")).status == 303


async def test_sign_out_ends_the_session_and_no_other(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.VIEWER)
    one, other = Browser(server), Browser(server)
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
    app: Tidemill, server: Server, clock: ManualClock
) -> None:
    browser = Browser(server)
    token = await token_of(app, Role.VIEWER)
    await browser.sign_in(token)
    clock.advance(app.settings.value("web.session"))
    assert (await browser.get("/")).status == 303
    await browser.sign_in(token)
    assert (await browser.get("/")).status == 200
    await app.access.tokens.revoke("ann")
    assert (await browser.get("/")).status == 303


async def test_a_write_by_cookie_has_to_be_meant(app: Tidemill, server: Server) -> None:
    """And needs the value of its own session; a token that is shown needs none."""
    browser, other = Browser(server), Browser(server)
    await browser.sign_in(await token_of(app, Role.OPERATOR))
    await other.sign_in(await token_of(app, Role.OPERATOR, "bo"))
    right = await browser.csrf()
    for wrong in ({}, {"csrf": ""}, {"csrf": await other.csrf()}, {"csrf": right[:-1]}, {"csrf": "é"}):
        assert (await browser.post("/queues/mail/pause", wrong)).status == 403
        assert (await app.inspect.queue("mail")).pause is None
    assert (await browser.post("/queues/mail/pause", {"csrf": right})).status == 303
    assert (await app.inspect.queue("mail")).pause is not None
    assert (await browser.post("/queues/mail/resume", x_csrf=right)).status == 303
    json = await browser.post(PAUSE, content_type="application/json", x_csrf="wrong")
    assert json.status == 403


async def test_roles(app: Tidemill, server: Server) -> None:
    for role, paused, tokens in ((Role.VIEWER, 403, 403), (Role.OPERATOR, 200, 403), (Role.ADMIN, 200, 200)):
        token = await token_of(app, role)
        assert (await call(server, "GET", QUEUES, token)).status == 200
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        answer = await ask(server.starlette, "POST", PAUSE, headers=headers, body=b"{}")
        assert answer.status == paused, answer.text
        assert (await call(server, "GET", "/api/v1/tokens", token)).status == tokens


async def test_who_fails_has_to_wait(app: Tidemill, server: Server, clock: ManualClock) -> None:
    """At once or one by one; a right token is taken all the same."""
    token = await token_of(app, Role.ADMIN)
    guesser = Browser(server, "10.0.0.1")
    answers = await asyncio.gather(*(guesser.sign_in(f"guess {number}") for number in range(TRIES + 3)))
    assert sorted(answer.status for answer in answers) == [401] * TRIES + [429] * 3
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (await guesser.sign_in(token)).status == 303
    assert (await guesser.sign_in("guess")).status == 429
    clock.advance(float(answers[-1].headers["retry-after"]))
    assert (await guesser.sign_in("guess")).status == 401


async def test_who_succeeds_has_not(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.VIEWER)
    for _ in range(TRIES * 3):
        assert (await Browser(server).sign_in(token)).status == 303


async def test_nobody_can_keep_others_from_signing_in(app: Tidemill, server: Server) -> None:
    """Failures of any number of addresses fill only so much of the log, and a right secret is still taken."""
    token, link = await token_of(app, Role.VIEWER), await app.access.links.create("bo", Role.VIEWER)
    statuses = [
        (await Browser(server, f"10.0.{number // 200}.{number % 200}").sign_in("guess")).status
        for number in range(OF_ALL + 1)
    ]
    assert statuses[-2:] == [401, 429]
    entries = await app.access.audit.page(1000, outcome=Outcome.REFUSED)
    assert len(entries.entries) == OF_ALL
    for address in ("10.0.0.1", "10.9.9.9"):
        assert (await Browser(server, address).sign_in(token)).status == 303
    assert (await Browser(server, "10.9.9.9").post(f"/sign-in/{link}")).status == 303


def test_an_address_does_not_pay_for_the_failures_of_others(clock: ManualClock) -> None:
    throttle = Throttle(clock)
    for number in range(OF_ALL):
        throttle.failed(f"10.0.{number // 200}.{number % 200}")
    for _ in range(TRIES):
        with pytest.raises(Refused):
            throttle.failed("10.9.9.9")
    clock.advance(MINUTES / OF_ALL * TRIES)
    for _ in range(TRIES):
        throttle.failed("10.9.9.9")


def test_failures_are_counted_by_the_network_of_an_ipv6_address(clock: ManualClock) -> None:
    throttle = Throttle(clock)
    for number in range(TRIES):
        throttle.failed(f"2001:db8:0:7::{number}")
    with pytest.raises(Refused):
        throttle.failed("2001:db8:0:7:ffff:ffff:ffff:ffff")
    throttle.failed("2001:db8:0:8::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1") == "fe80::/64"
    assert [network_of(None), network_of("a-socket")] == ["", "a-socket"]


async def test_wrong_tokens_do_not_fill_the_log_nor_keep_others_out(app: Tidemill, server: Server) -> None:
    token = await token_of(app, Role.VIEWER)
    for _ in range(TRIES * 4):
        assert (await call(server, "GET", QUEUES, f"tm_{'a' * 12}_{'b' * 32}")).status == 401
    entries = (await app.access.audit.page(outcome=Outcome.REFUSED)).entries
    assert len(entries) == TRIES
    assert {(entry.action, entry.why) for entry in entries} == {
        ("request with a token", "the token is wrong, over or revoked")
    }
    assert (await call(server, "GET", QUEUES, token)).status == 200
    assert (await Browser(server).sign_in(token)).status == 303


async def test_how_much_one_token_may_ask(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "6")
    async with made(clock) as app:
        server, token, other = Server(app), await token_of(app, Role.VIEWER), await token_of(app, Role.VIEWER)
        answers = await asyncio.gather(*(call(server, "GET", QUEUES, token) for _ in range(7)))
        assert sorted(answer.status for answer in answers) == [200] * 6 + [429]
        first = answers[0].headers
        assert (first["ratelimit-policy"], first["ratelimit"]) == ('"token";q=6;w=60', '"token";r=5;t=10')
        [refused] = [answer for answer in answers if answer.status == 429]
        assert refused.headers["retry-after"] == "10"
        assert (await call(server, "GET", QUEUES, other)).status == 200
        clock.advance(10.0)
        assert (await call(server, "GET", QUEUES, token)).status == 200
        assert (await call(server, "GET", QUEUES, token)).status == 429


async def test_a_large_body_is_refused_and_a_strangers_is_not_read(app: Tidemill, server: Server) -> None:
    body = b"x" * (10 * 1024 * 1024 + 1)
    headers = {"content-type": "application/json"}
    assert (await ask(server.starlette, "POST", "/api/v1/jobs", headers=headers, body=body)).status == 401
    headers["authorization"] = f"Bearer {await token_of(app, Role.ADMIN)}"
    assert (await ask(server.starlette, "POST", "/api/v1/jobs", headers=headers, body=body)).status == 413
    form = await ask(
        server.starlette,
        "POST",
        "/sign-in",
        headers={"content-type": FORM},
        body=b"token=" + body[:OF_ANYBODY],
    )
    assert form.status == 413


async def test_what_browsers_are_told(app: Tidemill, server: Server) -> None:
    browser = Browser(server)
    await browser.sign_in(await token_of(app, Role.VIEWER))
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


async def test_what_was_done_is_written_down(app: Tidemill, server: Server) -> None:
    browser = Browser(server, "10.0.0.9")
    await browser.sign_in("wrong")
    await browser.sign_in(await token_of(app, Role.OPERATOR))
    csrf = await browser.csrf()
    await browser.post("/queues/mail/pause", {"csrf": csrf, "reason": "password=hunter22"})
    await browser.post("/queues/mail/empty", {"csrf": csrf, "confirm": "mail"})
    await browser.post("/sign-out", {"csrf": csrf})
    entries = (await app.access.audit.page()).entries
    assert [(entry.who, entry.action, entry.outcome) for entry in reversed(entries)] == [
        ("nobody", "sign-in by token", "refused"),
        ("ann", "sign-in by token", "done"),
        ("ann", "POST /queues/{queue}/pause", "done"),
        ("ann", "POST /queues/{queue}/empty", "refused"),
        ("ann", "sign-out", "done"),
    ]
    assert {entry.address for entry in entries} == {"10.0.0.9"}
    paused = entries[2]
    assert paused.about["queue"] == "mail"
    assert "hunter22" not in str(entries)


async def test_what_a_body_says_is_written_down_but_payloads_and_secrets(
    app: Tidemill, server: Server
) -> None:
    async def takes(asked: Asked) -> None: ...

    for path in ("/api/own/lists", "/api/own/{name}"):
        app.web.route("POST", path, role=Role.OPERATOR, says="Take.", takes=Told)(takes)
    server = Server(app)
    headers = {
        "authorization": f"Bearer {await token_of(app, Role.OPERATOR)}",
        "content-type": "application/json",
    }
    body = (
        b'{"limit": ["a", "b"], "api_key": "hunter22", "payload": {"pin": "hunter22"}, "value": "hunter22"}'
    )
    lists = body.replace(b'"value": "hunter22"', b'"value": ""')
    await ask(server.starlette, "POST", "/api/own/lists", headers=headers, body=lists)
    await ask(server.starlette, "POST", "/api/own/smtp_password", headers=headers, body=body)
    secret, plain = (await app.access.audit.page()).entries
    assert plain.about == {"limit": '["a","b"]', "api_key": HIDDEN}
    assert secret.about == {"name": "smtp_password"}


async def test_the_log_has_no_payload_of_a_scheduled_job(clock: ManualClock) -> None:
    async with made(clock) as app:

        @app.task(name="pay")
        async def pay(pin: Annotated[str, Secret], to: str) -> None: ...

        server, token = Server(app), await token_of(app, Role.ADMIN)
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        job = {"task": "pay", "payload": {"pin": "canary", "to": "ann"}}
        body = msgspec.json.encode({"job": job, "every": 60})
        answer = await ask(server.starlette, "PUT", "/api/v1/schedules/nightly", headers=headers, body=body)
        assert answer.status == 200, answer.text
        [entry] = (await app.access.audit.page()).entries
    assert entry.about["job"] == '{"task":"pay"}'
    assert "canary" not in f"{entry} {answer.text}"


async def test_last_use_is_noted_and_written_later(app: Tidemill, server: Server, clock: ManualClock) -> None:
    token = await token_of(app, Role.VIEWER)
    await call(server, "GET", QUEUES, token)
    for _ in range(10):  # whatever was begun may go on
        await asyncio.sleep(0)
    assert [view.used for view in await app.access.tokens.list()] == [None], "reading writes nothing"
    await server.gate.uses.write()
    assert [view.used for view in await app.access.tokens.list()] == [clock.wall()]
    clock.advance(COARSE / 2)
    await call(server, "GET", QUEUES, token)
    await server.gate.uses.write()
    assert [view.used for view in await app.access.tokens.list()] == [clock.wall() - COARSE / 2]
    server.gate.uses.close()


async def test_a_stream_ends_when_its_viewer_may_no_longer_look(
    app: Tidemill, server: Server, clock: ManualClock
) -> None:
    closed: list[bool] = []

    async def endless() -> AsyncIterator[Event]:
        try:
            while True:
                clock.advance(LOOK_AGAIN)
                yield Event("tick", "")
        finally:
            closed.append(True)

    headers = [(b"authorization", f"Bearer {await token_of(app, Role.VIEWER)}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers, MORE: []})
    [route] = [each for each in server.routes if each.path == "/api/v1/events"]
    seen = 0
    who = await server.gate.admit(request, route)
    stream = server.streams.follow(endless(), partial(server.gate.still_admits, request, route, who), "ann")
    async for _ in stream:
        seen += 1
        if seen == 3:
            await app.access.tokens.revoke("ann")
    assert (seen, closed) == (3, [True])
    assert LOOK_AGAIN <= 1.0


async def test_streams_of_one_token_share_the_question_whether_it_holds(
    app: Tidemill, server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    who_is = Tokens.who

    async def counted(tokens: Tokens, token: str) -> Who | None:
        asked.append(token)
        return await who_is(tokens, token)

    monkeypatch.setattr(Tokens, "who", counted)
    headers = [(b"authorization", f"Bearer {await token_of(app, Role.VIEWER)}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers, MORE: []})
    [route] = [each for each in server.routes if each.path == "/api/v1/events"]
    who = Who("ann", Role.VIEWER)
    assert all([await server.gate.still_admits(request, route, who) for _ in range(50)])
    assert len(asked) == 1
    await app.access.tokens.revoke("ann")
    clock.advance(1.0)
    assert not await server.gate.still_admits(request, route, who)


class TestOwnAuth:
    """Somebody else says who asks; whatever else is asked is asked all the same."""

    async def _who(self, request: Request) -> Who | None:
        name = request.cookies.get("their-session")
        return Who(name, Role.OPERATOR) if name else None

    async def test_it_replaces_the_sign_in(self, app: Tidemill) -> None:
        server = Server(app, self._who)
        browser = Browser(server)
        assert (await browser.get("/")).status == 401
        for path in ("/sign-in", "/sign-in/tml_x"):
            assert (await browser.get(path)).status == 404
        ours = await call(server, "GET", QUEUES, await token_of(app, Role.ADMIN))
        assert ours.status == 401
        browser.cookies["their-session"] = "ann"
        shown = await browser.get("/")
        assert shown.status == 200
        assert "/sign-out" not in shown.text

    async def test_host_origin_role_and_csrf_hold(self, app: Tidemill) -> None:
        browser = Browser(Server(app, self._who))
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
        [entry] = [e for e in (await app.access.audit.page()).entries if e.outcome == "done"]
        assert (entry.who, entry.token) == ("ann", None)

    async def test_anybody_is_nobody(self, app: Tidemill) -> None:
        async def anybody(_: Request) -> Who:
            return Who("x", Role.ANYBODY)

        assert (await call(Server(app, anybody), "GET", QUEUES)).status == 401
