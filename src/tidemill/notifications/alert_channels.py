"""Alert channels (e-mail, Slack, DingTalk), and the task that sends a message through one."""

from __future__ import annotations

import base64
import contextlib
import hmac
import smtplib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from hashlib import blake2b
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from tidemill.clock import Clock
from tidemill.core.documents import DocumentJob
from tidemill.core.jobs import NewJob
from tidemill.core.retry import Retry
from tidemill.errors import ConfigurationError, GiveUp, TidemillError
from tidemill.notifications.alert_messages import AlertMessage
from tidemill.notifications.http_client import post, run_in_thread
from tidemill.notifications.webhook_definitions import NOTIFICATION_QUEUE
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tls import client_context

CHANNEL_TIMEOUT_SECONDS = 20.0
SmtpSecurity = Literal["none", "starttls", "tls"]
_SMTP_SCHEMES: dict[str, tuple[SmtpSecurity, int]] = {
    "smtp": ("none", 25),
    "smtp+starttls": ("starttls", 587),
    "smtps": ("tls", 465),
}


class ChannelError(TidemillError):
    """Raised if a channel did not accept a message. The job that sends the message is retried."""


class EmailChannel(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    security: SmtpSecurity
    sender: str
    to: tuple[str, ...]
    user: str | None = None
    password: str | None = None

    @classmethod
    def at(cls, url: str, sender: str, to: tuple[str, ...]) -> EmailChannel:
        """Returns the channel for an SMTP URL such as smtp+starttls://user:password@mail.example:587. Raises
        ConfigurationError for a wrong URL; the message never shows the password."""
        parts = urlsplit(url)
        if parts.scheme not in _SMTP_SCHEMES or not parts.hostname:
            raise ConfigurationError(
                "alerts.smtp_url: must be smtp://, smtp+starttls:// or smtps:// with a host, such as "
                "smtp+starttls://user:password@mail.example:587"
            )
        security, port = _SMTP_SCHEMES[parts.scheme]
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

    def send(self, message: AlertMessage, wall: float) -> None:
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
            # `closing` and not `with server`: SMTP.__exit__ sends QUIT, also to a server that has just
            # failed or refused.
            with contextlib.closing(self._connected()) as server:
                if self.security == "starttls":
                    server.starttls(context=client_context())
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(mail)
                server.quit()
        except (OSError, smtplib.SMTPException) as error:
            raise ChannelError(
                f"e-mail by {self.host}:{self.port}: {type(error).__name__}: {error}"
            ) from None

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(
                self.host, self.port, timeout=CHANNEL_TIMEOUT_SECONDS, context=client_context()
            )
        return smtplib.SMTP(self.host, self.port, timeout=CHANNEL_TIMEOUT_SECONDS)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class SlackChannel(msgspec.Struct, frozen=True):
    url: str

    def send(self, message: AlertMessage, wall: float) -> None:  # noqa: ARG002 - DingTalk signs with it
        _post_json(
            "Slack", self.url, {"text": f"*{_escape_slack(message.title)}*\n{_escape_slack(message.text)}"}
        )


class DingTalkChannel(msgspec.Struct, frozen=True):
    """A DingTalk robot. If `secret` is given, every call is signed with the secret and the time."""

    url: str
    secret: str | None = None

    def send(self, message: AlertMessage, wall: float) -> None:
        text = {"content": f"{message.title}\n\n{message.text}"}
        answer = _post_json("DingTalk", self.signed(wall), {"msgtype": "text", "text": text})
        code = _DingTalkReply() if not answer else _parse_dingtalk_reply(answer)
        if code.errcode:  # DingTalk sends errors with status 200
            raise ChannelError(f"DingTalk refused it: {code.errcode} {code.errmsg}")

    def signed(self, wall: float) -> str:
        if self.secret is None:
            return self.url
        timestamp = str(int(wall * 1000))
        digest = hmac.digest(self.secret.encode(), f"{timestamp}\n{self.secret}".encode(), "sha256")
        sign = quote_plus(base64.b64encode(digest))
        joint = "&" if "?" in self.url else "?"
        return f"{self.url}{joint}timestamp={quote(timestamp)}&sign={sign}"


AlertChannel = EmailChannel | SlackChannel | DingTalkChannel


class _DingTalkReply(msgspec.Struct):
    errcode: int = 0
    errmsg: str = ""


def _parse_dingtalk_reply(answer: bytes) -> _DingTalkReply:
    try:
        return msgspec.json.decode(answer, type=_DingTalkReply)
    except msgspec.DecodeError:
        return _DingTalkReply(-1, "the answer is not JSON")


def _post_json(channel: str, url: str, body: object) -> bytes:
    """Posts `body` as JSON and returns the response body. Raises ChannelError without the URL, because the
    URL is a secret. `channel` is the channel's name for the error."""
    try:
        answer = post(url, msgspec.json.encode(body), {}, timeout=CHANNEL_TIMEOUT_SECONDS, allowed=None)
    except OSError as error:
        raise ChannelError(f"{channel} did not answer: {type(error).__name__}") from None
    if not answer.accepted:
        raise ChannelError(f"{channel} answered {answer.status}")
    return answer.body


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


ALERT_TASK = "tidemill:alert"
ALERT_PRIORITY = 1
ALERT_RETRY = Retry(attempts=12, first=5.0, factor=2.0, cap=600.0)
ALERT_TIMEOUT_SECONDS = 120.0

AlertChannels = Mapping[str, AlertChannel]


def alert_task(channels: Callable[[], AlertChannels], clock: Callable[[], Clock]) -> TaskDefinition:
    async def send(channel: str, message: AlertMessage) -> None:
        found = channels().get(channel)
        if found is None:
            raise GiveUp(f"the channel {channel!r} is not set here; see the settings of alerts")
        await run_in_thread(lambda: found.send(message, clock().wall()))

    return make_task_definition(
        send, name=ALERT_TASK, queue=NOTIFICATION_QUEUE, retry=ALERT_RETRY, timeout=ALERT_TIMEOUT_SECONDS
    )


def alert_jobs(channels: AlertChannels, message: AlertMessage, event_id: str) -> tuple[DocumentJob, ...]:
    """Returns a job for each channel, which sends `message` through the channel. `event_id` identifies the
    message; the job ids are derived from it, so that a repeated call creates no further jobs."""
    return tuple(DocumentJob(NOTIFICATION_QUEUE, _alert_job(name, message, event_id)) for name in channels)


def _alert_job(channel: str, message: AlertMessage, event_id: str) -> NewJob:
    digest = blake2b(f"{channel}\0{event_id}".encode(), digest_size=16).hexdigest()
    payload = msgspec.json.encode({"channel": channel, "message": message})
    return NewJob(
        id=f"alert-{digest}",
        task=ALERT_TASK,
        payload=payload,
        priority=ALERT_PRIORITY,
        key=f"alert {channel}",
    )
