"""An address that cannot be listened on is told with what to change."""

from __future__ import annotations

import pytest

from tidemill.errors import ConfigurationError
from tidemill.web.server import listen


def test_a_taken_port_is_told_as_the_port() -> None:
    with listen("127.0.0.1", 0, chosen=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=rf"^port: 127.0.0.1:{port} .*; choose another with --port"
        ):
            listen("127.0.0.1", port, chosen=True)


def test_an_address_of_another_machine_is_told_as_the_host() -> None:
    with pytest.raises(ConfigurationError, match=r"^host: 203.0.113.5:8750 .*; choose another with --host"):
        listen("203.0.113.5", 8750, chosen=True)
