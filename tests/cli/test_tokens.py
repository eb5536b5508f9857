"""`token` and `link`: create, list and revoke access."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.support import Cli
from tidemill.auth import Auth
from tidemill.http_routes.routes import Role, User

AT = ("--app", "shop:app")
T = TypeVar("T")
TOKEN = re.compile(r"tm_[a-z2-7]{12}_[a-z2-7]{32}\n")


def run_auth(cli: Cli, work: Callable[[Auth], Coroutine[Any, Any, T]]) -> T:
    return cli.on_store(lambda _: work(cli.app().auth))


def test_a_token_is_printed_once(cli: Cli) -> None:
    """It is alone on its line, so it can be piped. The first token creates the store."""
    result = cli("token", "create", "ann", "--role", "operator", "--expires", "30d", *AT)
    assert (result.code, TOKEN.fullmatch(result.out) is not None) == (0, True)
    assert "ann is operator with this token, until" in result.err
    secret = result.out.strip()
    user = run_auth(cli, lambda auth: auth.tokens.user(secret))
    assert isinstance(user, User)
    assert (user.name, user.role) == ("ann", Role.OPERATOR)
    listed = cli("token", "list", *AT)
    assert secret.rpartition("_")[2] not in listed.out + cli("token", "list", "--json", *AT).out
    assert listed.out.splitlines()[1].split()[:4] == [secret.split("_")[1], "ann", "operator", "active"]


def test_json_output(cli: Cli) -> None:
    made = cli("token", "create", "ci", "--json", *AT).json
    assert made["token"]["role"] == "viewer"
    [listed] = cli("token", "list", "--json", *AT).json
    assert listed == made["token"]
    [revoked] = cli("token", "revoke", "ci", "--json", *AT).json
    assert (revoked["id"], revoked["state"]) == (listed["id"], "revoked")


def test_a_revoked_token_gives_no_access(cli: Cli) -> None:
    secret = cli("token", "create", "ann", *AT).out.strip()
    cli("token", "create", "ann", *AT)
    assert cli("token", "revoke", "ann", *AT).out == "revoked 2 tokens of ann\n"
    assert run_auth(cli, lambda auth: auth.tokens.user(secret)) is None
    again = cli("token", "revoke", "ann", *AT)
    assert (again.code, len(again.err.splitlines())) == (1, 1)
    assert "'ann'" in again.err


def test_an_empty_list_prints_a_note(cli: Cli) -> None:
    cli.make_store()
    result = cli("token", "list", *AT)
    assert (result.code, result.out) == (0, "")
    assert "tidemill token create NAME --app shop:app" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ann", "--role", "public"), "--role"),
        (("ann", "--role", "root"), "--role"),
        (("ann", "--expires", "soon"), "not a duration"),
        (("ann", "--expires", "0"), "expires: must be in more than 0 seconds"),
        (("",), "name: must have 1 to 200 characters"),
    ],
)
def test_invalid_input_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    result = cli("token", "create", *arguments, *AT)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err


def test_a_link_signs_in_once(cli: Cli) -> None:
    cli.make_store()
    result = cli("link", "--role", "viewer", "--name", "bo", "--at", "https://mill.example/", *AT)
    found = re.fullmatch(r"https://mill\.example/sign-in/(tml_\w+)\n", result.out)
    assert found is not None
    used = [run_auth(cli, lambda auth: auth.links.use(found[1])) for _ in range(2)]
    assert [link and (link.name, link.role) for link in used] == [("bo", Role.VIEWER), None]
    plain = cli("link", "--json", *AT).json["link"]
    assert plain.startswith("http://127.0.0.1:8750/sign-in/tml_")


def test_the_audit_log_names_the_operator(cli: Cli) -> None:
    cli("token", "create", "ann", *AT)
    cli("token", "revoke", "ann", *AT)
    cli("link", *AT)
    entries = run_auth(cli, lambda auth: auth.audit.page()).entries
    assert [entry.action for entry in reversed(entries)] == [
        "tidemill token create",
        "tidemill token revoke",
        "tidemill link",
    ]
    assert all("@" in entry.user and entry.address is None for entry in entries)


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


def test_a_token_created_in_another_shell_changes_no_limit(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running workers got their limits from variables that this shell does not have."""
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
