"""`token` and `link`: let somebody in, see who is, and let nobody in by it any more."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.support import Cli
from tidemill.access.access import Access
from tidemill.seam.roles import Role, Who

AT = ("--app", "shop:app")
T = TypeVar("T")
TOKEN = re.compile(r"tm_[a-z2-7]{12}_[a-z2-7]{32}\n")


def asked(cli: Cli, ask: Callable[[Access], Coroutine[Any, Any, T]]) -> T:
    return cli.on_store(lambda _: ask(cli.app().access))


def test_a_token_is_printed_once(cli: Cli) -> None:
    """Alone on its line, so that it can be piped; the first one makes the store."""
    ran = cli("token", "create", "ann", "--role", "operator", "--expires", "30d", *AT)
    assert (ran.code, TOKEN.fullmatch(ran.out) is not None) == (0, True)
    assert "ann is operator with this token, until" in ran.err
    secret = ran.out.strip()
    who = asked(cli, lambda access: access.tokens.who(secret))
    assert isinstance(who, Who)
    assert (who.name, who.role) == ("ann", Role.OPERATOR)
    listed = cli("token", "list", *AT)
    assert secret.rpartition("_")[2] not in listed.out + cli("token", "list", "--json", *AT).out
    assert listed.out.splitlines()[1].split()[:4] == [secret.split("_")[1], "ann", "operator", "active"]


def test_for_programs(cli: Cli) -> None:
    made = cli("token", "create", "ci", "--json", *AT).json
    assert made["token"]["role"] == "viewer"
    [listed] = cli("token", "list", "--json", *AT).json
    assert listed == made["token"]
    [revoked] = cli("token", "revoke", "ci", "--json", *AT).json
    assert (revoked["id"], revoked["state"]) == (listed["id"], "revoked")


def test_nobody_comes_in_by_one_that_was_revoked(cli: Cli) -> None:
    secret = cli("token", "create", "ann", *AT).out.strip()
    cli("token", "create", "ann", *AT)
    assert cli("token", "revoke", "ann", *AT).out == "revoked 2 tokens of ann\n"
    assert asked(cli, lambda access: access.tokens.who(secret)) is None
    again = cli("token", "revoke", "ann", *AT)
    assert (again.code, len(again.err.splitlines())) == (1, 1)
    assert "'ann'" in again.err


def test_there_are_none_yet(cli: Cli) -> None:
    cli.make_store()
    ran = cli("token", "list", *AT)
    assert (ran.code, ran.out) == (0, "")
    assert "tidemill token create NAME --app shop:app" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ann", "--role", "anybody"), "--role"),
        (("ann", "--role", "root"), "--role"),
        (("ann", "--expires", "soon"), "not a duration"),
        (("ann", "--expires", "0"), "expires: must be in more than 0 seconds"),
        (("",), "name: must have 1 to 200 characters"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    ran = cli("token", "create", *arguments, *AT)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err


def test_a_link_signs_in_once(cli: Cli) -> None:
    cli.make_store()
    ran = cli("link", "--role", "viewer", "--name", "bo", "--at", "https://mill.example/", *AT)
    found = re.fullmatch(r"https://mill\.example/sign-in/(tml_\w+)\n", ran.out)
    assert found is not None
    used = [asked(cli, lambda access: access.links.use(found[1])) for _ in range(2)]
    assert [link and (link.name, link.role) for link in used] == [("bo", Role.VIEWER), None]
    plain = cli("link", "--json", *AT).json["link"]
    assert plain.startswith("http://127.0.0.1:8750/sign-in/tml_")


def test_who_did_it_is_in_the_audit_log(cli: Cli) -> None:
    cli("token", "create", "ann", *AT)
    cli("token", "revoke", "ann", *AT)
    cli("link", *AT)
    entries = asked(cli, lambda access: access.audit.page()).entries
    assert [entry.action for entry in reversed(entries)] == [
        "tidemill token create",
        "tidemill token revoke",
        "tidemill link",
    ]
    assert all("@" in entry.who and entry.address is None for entry in entries)


LIMITED = """
import os
from tidemill import Limit, Tidemill

app = Tidemill("sqlite:///limited.db")
model = app.pool("model", Limit.requests(int(os.environ.get("CALLS", "5")), per="minute"))
app.queue("work", concurrency=int(os.environ.get("CALLS", "5")))

@app.task(name="call", queue="work", pool=model)
async def call() -> None: ...
"""
LIMITS = (("queues", "work"), ("pools", "model"))


def test_a_token_made_in_another_shell_changes_no_limit(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs was given its limits by variables that this shell does not have."""
    (tmp_path / "limited.py").write_text(LIMITED)
    at = ("--app", "limited:app")
    monkeypatch.setenv("CALLS", "2")
    assert cli("enqueue", "call", *at).code == 0
    before = [cli(kind, "info", name, "--json", *at).json for kind, name in LIMITS]
    monkeypatch.delenv("CALLS")
    sys.modules.pop("limited")
    assert cli("token", "create", "ann", *at).code == 0
    after = [cli(kind, "info", name, "--json", *at).json for kind, name in LIMITS]
    assert [one["declared"] for one in after] == [one["declared"] for one in before]
