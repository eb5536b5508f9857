"""The packages of `make demo` are a subset of those of `make test`, in the same versions."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.docs.pages import ROOT

DEV, RUN, QUOTA = "constraints.txt", "constraints-run.txt", "constraints-quota.txt"


def pinned(file: str) -> dict[str, str]:
    """Returns the version and the hashes of each package.

    Environment markers are left out: a package that one list needs only on old Pythons, another needs
    everywhere."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", "")
    found = (re.match(r"([\w.-]+)(==\S+) .*?(--hash=sha256:\w+.*)", line) for line in text.splitlines())
    return {match[1]: match[2] + match[3] for match in found if match}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def named(requirements: list[str]) -> list[str]:
    return [re.split(r"[\[><=;]", needed)[0] for needed in requirements]


def test_to_run_is_a_part_of_to_develop() -> None:
    assert pinned(RUN).items() <= pinned(DEV).items()
    assert len(pinned(RUN)) < len(pinned(DEV)) / 2


def test_the_peers_of_the_quota_benchmark_are_no_dependencies() -> None:
    peers = {"bullmq", "celery"}
    assert peers <= pinned(QUOTA).keys()
    assert not peers & pinned(DEV).keys()
    for name, version in pinned(RUN).items():
        assert pinned(QUOTA).get(name, version) == version
    # Without the packages of the applications.
    assert set(named(project()["dependencies"])) <= pinned(QUOTA).keys()


def test_every_dependency_is_pinned() -> None:
    needed, extras = project()["dependencies"], project()["optional-dependencies"]
    for group in (needed, extras["music"], extras["articles"]):
        assert set(named(group)) <= pinned(RUN).keys()
    for group in extras.values():
        assert set(named(group)) <= pinned(DEV).keys()


@pytest.mark.parametrize("file", [DEV, RUN, QUOTA])
def test_no_host_and_no_path_is_named(file: str) -> None:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if re.search(r"://|^-|file:|@ ", line)]
