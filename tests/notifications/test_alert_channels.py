"""Alert messages arrive at a real mail server, and in the formats of Slack and DingTalk (E13, V7)."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.notifications.mail_server import Mailbox, MailServer
from tests.notifications.receiver import Receiver
from tests.servers.certificates import Certificate
from tests.servers.program import free_port
from tidemill import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.notifications.alert_channels import ChannelError, DingTalkChannel, EmailChannel, SlackChannel
from tidemill.notifications.alert_messages import AlertMessage

MESSAGE = AlertMessage(
    "[Tidemill] queue feeds: 1 200 jobs wait", "queue feeds: 1 200 jobs wait\n<b> & 等待\n"
)
NOW = 1_700_000_000.25


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def port(mailbox: Mailbox) -> Iterator[int]:
    port = free_port()
    server = MailServer(mailbox, port)
    server.start()
    yield port
    server.stop()


def test_an_e_mail_arrives_e13(mailbox: Mailbox, port: int) -> None:
    EmailChannel.at(
        f"smtp://127.0.0.1:{port}", "tidemill@ops.example", ("ann@ops.example", "bob@ops.example")
    ).send(MESSAGE, NOW)
    [message] = mailbox.messages
    assert message["subject"] == MESSAGE.title
    assert (message["from"], message["to"]) == ("tidemill@ops.example", "ann@ops.example, bob@ops.example")
    assert message.get_content().replace("\r\n", "\n") == MESSAGE.text
    assert mailbox.envelopes[0].rcpt_tos == ["ann@ops.example", "bob@ops.example"]
    assert parsedate_to_datetime(message["date"]).timestamp() == int(NOW)
    assert re.fullmatch(r"<\S+@ops\.example>", message["message-id"])


def test_a_password_is_not_sent_unencrypted() -> None:
    with pytest.raises(
        ConfigurationError, match=r"password to mail\.example unencrypted; write smtp\+starttls"
    ):
        EmailChannel.at("smtp://me:secret@mail.example", "a@b.example", ("c@d.example",))
    for host in ("localhost", "127.0.0.1", "[::1]"):
        EmailChannel.at(f"smtp://me:secret@{host}", "a@b.example", ("c@d.example",))


def test_an_e_mail_goes_by_starttls_with_user_and_password(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, port = Certificate(tmp_path), free_port()
    server = MailServer(mailbox, port, tls=certificate.context())
    server.start()
    try:
        right = EmailChannel.at(
            f"smtp+starttls://me:p%40ss%3Aword@127.0.0.1:{port}", "a@b.example", ("c@d.example",)
        )
        with pytest.raises(ChannelError, match="CERTIFICATE_VERIFY_FAILED"):
            right.send(MESSAGE, NOW)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        right.send(MESSAGE, NOW)
        wrong = EmailChannel.at(f"smtp+starttls://me:guess@127.0.0.1:{port}", "a@b.example", ("c@d.example",))
        with pytest.raises(ChannelError) as caught:
            wrong.send(MESSAGE, NOW)
        assert "guess" not in str(caught.value)
    finally:
        server.stop()
    assert mailbox.encrypted == [True]


def test_a_title_adds_no_header(mailbox: Mailbox, port: int) -> None:
    EmailChannel.at(f"smtp://127.0.0.1:{port}", "a@b.example", ("c@d.example",)).send(
        AlertMessage("queue x\r\nBcc: evil@x.example: 5 jobs wait", "text"), NOW
    )
    assert mailbox.messages[0]["bcc"] is None
    assert mailbox.envelopes[0].rcpt_tos == ["c@d.example"]


def test_slack_gets_what_it_expects(receiver: Receiver) -> None:
    receiver.status, receiver.reply_body = 200, b"ok"
    SlackChannel(f"{receiver.url}/services/T/B/x").send(MESSAGE, NOW)
    [got] = receiver.requests
    assert got.path == "/services/T/B/x"
    assert got.json == {"text": f"*{MESSAGE.title}*\nqueue feeds: 1 200 jobs wait\n&lt;b&gt; &amp; 等待\n"}


def test_dingtalk_is_called_with_a_signature_it_can_verify_e13_v7(receiver: Receiver) -> None:
    receiver.status, receiver.reply_body = 200, b'{"errcode":0,"errmsg":"ok"}'
    DingTalkChannel(f"{receiver.url}/robot/send?access_token=abc", "SECabc123").send(MESSAGE, NOW)
    [got] = receiver.requests
    query = parse_qs(urlsplit(got.path).query)
    assert query["access_token"] == ["abc"]
    assert query["timestamp"] == ["1700000000250"]
    key, signed = b"SECabc123", b"1700000000250\nSECabc123"
    assert query["sign"] == [base64.b64encode(hmac.digest(key, signed, "sha256")).decode()]
    assert got.json == {"msgtype": "text", "text": {"content": f"{MESSAGE.title}\n\n{MESSAGE.text}"}}


@pytest.mark.parametrize("body", [b'{"errcode":310000,"errmsg":"sign not match"}', b"<html>"])
def test_an_error_code_of_dingtalk_with_status_200_is_an_error(receiver: Receiver, body: bytes) -> None:
    receiver.status, receiver.reply_body = 200, body
    with pytest.raises(ChannelError, match=r"DingTalk refused it: (310000 sign not match|-1)"):
        DingTalkChannel(receiver.url).send(MESSAGE, NOW)


def test_channel_errors_do_not_contain_the_url(receiver: Receiver) -> None:
    receiver.status = 404
    with pytest.raises(ChannelError, match=r"^Slack answered 404$"):
        SlackChannel(f"{receiver.url}/services/secret").send(MESSAGE, NOW)
    receiver.stop()
    with pytest.raises(ChannelError, match=r"^Slack did not answer: ConnectionRefusedError$"):
        SlackChannel(f"{receiver.url}/services/secret").send(MESSAGE, NOW)


def test_channels_come_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_ALERTS_SMTP_URL", "smtps://me:secret@mail.example")
    with pytest.raises(ConfigurationError, match=re.escape("alerts.email_to: must be set too")):
        _ = Tidemill("memory://").alerts
    monkeypatch.setenv("TIDEMILL_ALERTS_EMAIL_TO", "ann@ops.example, bob@ops.example")
    monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", "https://hooks.slack.example/services/x")
    monkeypatch.setenv(
        "TIDEMILL_ALERTS_DINGTALK_URL", "https://oapi.dingtalk.example/robot/send?access_token=x"
    )
    monkeypatch.setenv("TIDEMILL_ALERTS_DINGTALK_SECRET", "SEC0123456789")
    app = Tidemill("memory://")
    assert app.alerts.channels == ("email", "slack", "dingtalk")
    email = app.notifications.channels["email"]
    assert isinstance(email, EmailChannel)
    assert (email.host, email.port, email.security, email.user) == ("mail.example", 465, "tls", "me")
    assert (email.sender, email.to) == ("ann@ops.example", ("ann@ops.example", "bob@ops.example"))
    shown = repr(app.settings.effective())
    assert not any(secret in shown for secret in ("secret@", "services/x", "access_token", "SEC0123456789"))
    assert list(app.alerts.rules) == [
        "dead letters",
        "pool closed",
        "oldest job",
        "worker gone",
        "store lost",
    ]


@pytest.mark.parametrize("key", ["slack_url", "dingtalk_url", "dingtalk_secret"])
def test_secrets_of_channels_do_not_come_from_a_file_x5(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidemill.toml").write_text(f'[alerts]\n{key} = "https://hooks.example/abcdef"\n')
    with pytest.raises(ConfigurationError, match=f"set TIDEMILL_ALERTS_{key.upper()}") as caught:
        Tidemill("memory://")
    assert "abcdef" not in str(caught.value)


def test_rules_come_of_a_file_and_a_wrong_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tidemill.toml"
    file.write_text('[alerts.rules.feeds]\non = "queue_length"\nqueue = "feeds"\nabove = 1000\nclear = 500\n')
    app = Tidemill("memory://")
    app.alert("own", on="oldest_job", above=60)
    assert app.alerts.rules["feeds"].clear_threshold == 500
    assert list(app.alerts.rules) == ["own", "feeds"]
    for wrong in ('on = "queue_lenght"', 'on = "queue_length"', 'on = "oldest_job"\nabove = 5\nclear = 6'):
        file.write_text(f"[alerts.rules.feeds]\n{wrong}\n")
        with pytest.raises(
            ConfigurationError, match=r"tidemill\.toml: alerts\.rules must be rules of alerts"
        ):
            Tidemill("memory://")
