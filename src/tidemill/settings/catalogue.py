"""The list of all settings: name, environment variable, type, default and meaning.

The name is also the key in a TOML file: `worker.lease` is `lease` in `[worker]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.core.queues import QueueSettings
from tidemill.settings import value_types
from tidemill.settings.value_types import SettingType
from tidemill.store_url import DEFAULT_URL


class Setting(msgspec.Struct, frozen=True):
    """One setting.

    - `kind`: its type
    - `variables`: its environment variables; the first one with a value is used
    - `secret`: True if the value is never shown in full, and is refused in a file if it has credentials
    - `environment_only`: True if the value is always refused in a file"""

    name: str
    kind: SettingType
    default: Any
    meaning: str
    variables: tuple[str, ...]
    secret: bool = False
    environment_only: bool = False


def variable_name(name: str) -> str:
    return "TIDEMILL_" + re.sub(r"\W", "_", name).upper()


def _section(section: str, *entries: tuple[str, SettingType, Any, str]) -> list[Setting]:
    return [
        Setting(name := f"{section}.{key}", kind, default, meaning, (variable_name(name),))
        for key, kind, default, meaning in entries
    ]


_URL = Setting(
    "url",
    value_types.TEXT,
    DEFAULT_URL,
    "where the store is",
    ("TIDEMILL_URL", "REDIS_URL", "DATABASE_URL"),
    secret=True,
)

_APP = Setting(
    "app",
    value_types.APPLICATION,
    None,
    "the application for commands, if none is named",
    ("TIDEMILL_APP",),
)

_WORKER = _section(
    "worker",
    ("queues", value_types.WEIGHTS, None, "names with their weights; a name alone has its declared weight"),
    ("strict", value_types.SWITCH, False, "serve queues in the order given instead of by weight"),
    ("concurrency", value_types.COUNT, 10, "jobs at once in one worker"),
    (
        "processes",
        value_types.COUNT_OR_NONE,
        None,
        "worker processes that `tidemill worker` keeps running under a parent; none and no parent by default",
    ),
    ("lease", value_types.SECONDS, 30.0, "how long a claim lasts without a heartbeat"),
    (
        "heartbeat",
        value_types.SECONDS_OR_NONE,
        None,
        "how often leases are renewed; a third of the lease by default",
    ),
    (
        "grace",
        value_types.SECONDS_OR_ZERO,
        30.0,
        "how long running jobs may continue after the signal to stop",
    ),
    ("poll", value_types.SECONDS, 2.0, "how long a job may wait when every wake-up is lost"),
    (
        "threads",
        value_types.COUNT_OR_NONE,
        None,
        "sync handlers at once; as many as `concurrency` by default",
    ),
    ("isolated_processes", value_types.COUNT_OR_NONE, None, "isolated jobs at once; one per core by default"),
    (
        "lead_every",
        value_types.SECONDS,
        2.0,
        "how often it renews its leadership and checks for due maintenance",
    ),
    ("reclaim_every", value_types.SECONDS, 10.0, "how often expired leases are looked for"),
    ("prune_every", value_types.SECONDS, 30.0, "how often retention is applied"),
)

_LOG = _section(
    "log",
    ("format", value_types.FORMAT, "auto", "`json`, `console`, or `auto`: JSON unless stderr is a terminal"),
    (
        "level",
        value_types.LEVEL,
        "info",
        "write no lines below it: `debug`, `info`, `warning`, `error`",
    ),
)

_WEB = _section(
    "web",
    (
        "host",
        value_types.HOST,
        "127.0.0.1",
        "the address the dashboard listens on; by default only this machine",
    ),
    (
        "port",
        value_types.PORT,
        8750,
        "the port the dashboard listens on; if the default is taken, the next free one",
    ),
    (
        "public_url",
        value_types.WEB_ADDRESS,
        None,
        "the address people reach the dashboard at, for links in alerts; none by default",
    ),
    (
        "hosts",
        value_types.HOSTS,
        (),
        "host names of the dashboard besides its own address, such as that of a reverse proxy",
    ),
    (
        "proxies",
        value_types.HOSTS,
        (),
        "trusted reverse proxies, whose X-Forwarded-For and -Proto headers are used",
    ),
    ("session", value_types.SECONDS, 43200.0, "how long a browser stays signed in; half a day by default"),
    ("rate", value_types.COUNT, 1200, "requests a minute of one token, beyond which it is answered 429"),
    (
        "keep_audit",
        value_types.SECONDS,
        7776000.0,
        "how long entries of the audit log stay; 90 days by default",
    ),
    (
        "redact",
        value_types.NAMES,
        (),
        "names of fields whose values are hidden in everything that is shown or sent, beside the usual names",
    ),
)

_WEBHOOKS = _section(
    "webhooks",
    (
        "allow",
        value_types.HOSTS,
        (),
        "hosts, host:port and networks that webhooks may call although they are not public; none by default",
    ),
    ("timeout", value_types.SECONDS, 15.0, "how long a receiver has for its whole answer"),
)

_ALERTS = [
    *_section(
        "alerts",
        (
            "rules",
            value_types.RULES,
            {},
            "alert rules, see the page on alerts; the usual rules by default",
        ),
        ("interval", value_types.SECONDS, 15.0, "how often the rules are looked at"),
        (
            "digest",
            value_types.SECONDS_OR_ZERO,
            30.0,
            "events within this many seconds go into one message",
        ),
        (
            "repeat",
            value_types.SECONDS,
            3600.0,
            "how often an unresolved alert is repeated at most",
        ),
        ("email_to", value_types.MAILBOXES, (), "who gets an e-mail"),
        (
            "email_from",
            value_types.MAILBOX_OR_NONE,
            None,
            "the sender; the first of `email_to` by default",
        ),
    ),
    Setting(
        "alerts.smtp_url",
        value_types.MAIL_SERVER,
        None,
        "the mail server: `smtp://`, `smtp+starttls://` or `smtps://`, with user and password if need be",
        ("TIDEMILL_ALERTS_SMTP_URL",),
        secret=True,
    ),
    *(
        Setting(f"alerts.{name}", kind, None, meaning, (variable_name(f"alerts.{name}"),), True, True)
        for name, kind, meaning in (
            ("slack_url", value_types.WEBHOOK_URL, "the address of a Slack webhook"),
            ("dingtalk_url", value_types.WEBHOOK_URL, "the address of a DingTalk robot"),
            (
                "dingtalk_secret",
                value_types.WEBHOOK_SECRET,
                "the key that signs its calls, if it requires signatures",
            ),
        )
    ),
]

CATALOGUE: Mapping[str, Setting] = {
    setting.name: setting for setting in (_URL, _APP, *_WORKER, *_LOG, *_WEB, *_WEBHOOKS, *_ALERTS)
}

SECTIONS = ("worker", "log", "web", "webhooks", "alerts")

_QUEUE_SETTINGS: Mapping[str, tuple[SettingType, str]] = {
    "weight": (value_types.COUNT, "its share of a worker that serves several queues"),
    "concurrency": (value_types.COUNT_OR_NONE, "running jobs at once, over all workers"),
    "key_concurrency": (value_types.COUNT_OR_NONE, "running jobs of one key at once, over all workers"),
    "max_length": (value_types.COUNT_OR_NONE, "pending jobs; beyond it enqueue raises `QueueFull`"),
    "crash_limit": (
        value_types.COUNT,
        "crashes until a job is poison; beyond the first only those it had alone count",
    ),
    "keep_done": (value_types.RETENTION, "how long done jobs stay"),
    "keep_failed": (value_types.RETENTION, "how long failed jobs stay"),
    "keep_cancelled": (value_types.RETENTION, "how long cancelled jobs stay"),
}

OTHER_VARIABLES = {
    "TIDEMILL_CONFIG": "the TOML file to read instead of the one in the working directory",
    "TIDEMILL_SUPERVISOR": "set by a supervisor for the workers it starts",
    "TIDEMILL_WORKER_ID": "set by a supervisor for the workers it starts",
    "TIDEMILL_LOCKSTEP_EXAMPLES": "how many histories the conformance suite makes up",
    "TIDEMILL_LOCKSTEP_STEPS": "how long each of them is",
}
"""Variables that Tidemill reads although no file or argument can set them."""


def queue_catalogue(queue: str) -> dict[str, Setting]:
    """Returns the settings of one queue by short name, such as `weight` for `queues.feeds.weight`. They have
    environment variables only if the queue's name consists of letters, digits and `_.:-`."""
    plain = re.fullmatch(r"[A-Za-z0-9_.:-]+", queue) is not None
    defaults = QueueSettings()
    return {
        key: Setting(
            name := f"queues.{queue}.{key}",
            kind,
            getattr(defaults, key),
            meaning,
            (variable_name(name),) if plain else (),
        )
        for key, (kind, meaning) in _QUEUE_SETTINGS.items()
    }
