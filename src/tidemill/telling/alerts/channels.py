"""Ways to reach people. Their addresses and secrets come by the environment: whoever sets them may call
anybody."""

from __future__ import annotations

import base64
import contextlib
import hmac
import smtplib
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from tidemill.errors import ConfigurationError, TidemillError
from tidemill.telling.alerts.wording import Message
from tidemill.telling.posting import post
from tidemill.tls import client_context

TIMEOUT = 20.0
Security = Literal["none", "starttls", "tls"]
_SCHEMES: dict[str, tuple[Security, int]] = {
    "smtp": ("none", 25),
    "smtp+starttls": ("starttls", 587),
    "smtps": ("tls", 465),
}


class NotSent(TidemillError):
    """A message was not taken; it is tried again."""


class Email(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    security: Security
    sender: str
    to: tuple[str, ...]
    user: str | None = None
    password: str | None = None

    @classmethod
    def at(cls, url: str, sender: str, to: tuple[str, ...]) -> Email:
        """`url` such as smtp+starttls://user:password@mail.example:587. What it holds is not shown."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigurationError(
                "alerts.smtp_url: must be smtp://, smtp+starttls:// or smtps:// with a host, such as "
                "smtp+starttls://user:password@mail.example:587"
            )
        security, port = _SCHEMES[parts.scheme]
        if security == "none" and parts.password is not None and not _is_loopback(parts.hostname):
            raise ConfigurationError(
                f"alerts.smtp_url: smtp:// would send the password to {parts.hostname} unencrypted; write "
                "smtp+starttls:// or smtps://"
            )
        return cls(
            host=parts.hostname,
            port=parts.port or port,
            security=security,
            sender=sender,
            to=to,
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )

    def send(self, message: Message, wall: float) -> None:
        mail = EmailMessage()
        mail["Date"] = format_datetime(datetime.fromtimestamp(wall, UTC))
        mail["Message-ID"] = make_msgid(domain=self.sender.rpartition("@")[2].strip(" >") or "localhost")
        mail["Subject"], mail["From"], mail["To"] = (
            " ".join(message.title.split()),
            self.sender,
            ", ".join(self.to),
        )
        mail.set_content(message.text)
        try:
            # Not as a context: that would say farewell to a server that did not get as far as hearing it.
            with contextlib.closing(self._connected()) as server:
                if self.security == "starttls":
                    server.starttls(context=client_context())
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(mail)
                server.quit()
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(f"e-mail by {self.host}:{self.port}: {type(error).__name__}: {error}") from None

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=TIMEOUT, context=client_context())
        return smtplib.SMTP(self.host, self.port, timeout=TIMEOUT)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Slack(msgspec.Struct, frozen=True):
    url: str

    def send(self, message: Message, wall: float) -> None:  # noqa: ARG002 - one channel has a use for it
        _post("Slack", self.url, {"text": f"*{_escaped(message.title)}*\n{_escaped(message.text)}"})


class DingTalk(msgspec.Struct, frozen=True):
    """With a `secret` every call is signed by it and the time."""

    url: str
    secret: str | None = None

    def send(self, message: Message, wall: float) -> None:
        text = {"content": f"{message.title}\n\n{message.text}"}
        answer = _post("DingTalk", self.signed(wall), {"msgtype": "text", "text": text})
        code = _Refusal() if not answer else _refusal(answer)
        if code.errcode:  # it answers 200 all the same
            raise NotSent(f"DingTalk refused it: {code.errcode} {code.errmsg}")

    def signed(self, wall: float) -> str:
        if self.secret is None:
            return self.url
        timestamp = str(int(wall * 1000))
        digest = hmac.digest(self.secret.encode(), f"{timestamp}\n{self.secret}".encode(), "sha256")
        sign = quote_plus(base64.b64encode(digest))
        joint = "&" if "?" in self.url else "?"
        return f"{self.url}{joint}timestamp={quote(timestamp)}&sign={sign}"


Channel = Email | Slack | DingTalk


class _Refusal(msgspec.Struct):
    errcode: int = 0
    errmsg: str = ""


def _refusal(answer: bytes) -> _Refusal:
    try:
        return msgspec.json.decode(answer, type=_Refusal)
    except msgspec.DecodeError:
        return _Refusal(-1, "the answer is not JSON")


def _post(whose: str, url: str, body: object) -> bytes:
    """The address is a secret: it is not told."""
    try:
        answer = post(url, msgspec.json.encode(body), {}, timeout=TIMEOUT, allowed=None)
    except OSError as error:
        raise NotSent(f"{whose} did not answer: {type(error).__name__}") from None
    if not answer.accepted:
        raise NotSent(f"{whose} answered {answer.status}")
    return answer.body


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
