"""What virtual time cannot do, said in words.

A socket answers in real time. A handler that opens one would wait for ever on a loop that never looks
at it, so the loop's ways to open one refuse, and say what to do instead.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn


class NotInVirtualTime(NotImplementedError):
    """A socket, a pipe or a process was asked of a virtual loop."""


class NoSockets(asyncio.BaseEventLoop):
    """The base of a loop that only computes."""


def _refusing(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotInVirtualTime(
            f"{name}: virtual time has no sockets, pipes or processes. Give the code under test a fake "
            "instead, or test it on an ordinary loop: an async test without @pytest.mark.tidemill"
        )

    refuse.__name__ = name
    return refuse


for _name in (
    "add_reader",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_sendall",
    "sock_sendto",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(NoSockets, _name, _refusing(_name))
