"""A real mail server on loopback that stores the messages it receives."""

from __future__ import annotations

import ssl
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class Mailbox:
    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.encrypted: list[bool] = []

    async def handle_DATA(self, _: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - the name that aiosmtpd calls
        self.envelopes.append(envelope)
        self.encrypted.append(session.ssl is not None)
        return "250 OK"

    @property
    def messages(self) -> list[EmailMessage]:
        return [message_from_bytes(cast("bytes", one.content), policy=default) for one in self.envelopes]


class MailServer(Controller):
    def __init__(self, mailbox: Mailbox, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        options: dict[str, Any] = {}
        if tls is not None:
            options = {
                "tls_context": tls,
                "require_starttls": True,
                "auth_required": True,
                "authenticator": _knows,
            }
        super().__init__(mailbox, hostname="127.0.0.1", port=port, **options)


def _knows(_: SMTP, __: Session, ___: Envelope, mechanism: str, data: Any) -> AuthResult:
    is_right = isinstance(data, LoginPassword) and data == LoginPassword(b"me", b"p@ss:word")
    return AuthResult(success=is_right and mechanism in ("LOGIN", "PLAIN"), handled=False)
