"""Every setting: its name, its variable, its kind, its default and what it means.

A setting's name is also its key in a TOML file: `worker.lease` is `lease` in `[worker]`.
docs/reference/settings.md is held equal to this list by a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.core.queues import QueueSettings
from tidemill.settings import kinds
from tidemill.settings.kinds import Kind
from tidemill.urls import DEFAULT_URL


class Setting(msgspec.Struct, frozen=True):
    """`variables` are asked in their order. A `secret` one is never shown as it is, nor taken
    from a file when it holds credentials; one that is `environment_only` is never taken from a file."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    variables: tuple[str, ...]
    secret: bool = False
    environment_only: bool = False


def variable(name: str) -> str:
    return "TIDEMILL_" + re.sub(r"\W", "_", name).upper()


def _settings(section: str, *entries: tuple[str, Kind, Any, str]) -> list[Setting]:
    return [
        Setting(name := f"{section}.{key}", kind, default, meaning, (variable(name),))
        for key, kind, default, meaning in entries
    ]


_URL = Setting(
    "url",
    kinds.TEXT,
    DEFAULT_URL,
    "where the store is",
    ("TIDEMILL_URL", "REDIS_URL", "DATABASE_URL"),
    secret=True,
)

_APP = Setting(
    "app",
    kinds.APPLICATION,
    None,
    "the application that commands are about, when none is named",
    ("TIDEMILL_APP",),
)

_WORKER = _settings(
    "worker",
    ("queues", kinds.WEIGHTS, None, "names with their weights; a name alone has its declared weight"),
    ("strict", kinds.SWITCH, False, "serve queues in the order given instead of by weight"),
    ("concurrency", kinds.COUNT, 10, "jobs at once in one worker"),
    (
        "processes",
        kinds.COUNT_OR_NONE,
        None,
        "worker processes that `tidemill worker` keeps running under a parent; none and no parent by default",
    ),
    ("lease", kinds.SECONDS, 30.0, "how long a claim lasts without a heartbeat"),
    (
        "heartbeat",
        kinds.SECONDS_OR_NONE,
        None,
        "how often leases are renewed; a third of the lease by default",
    ),
    (
        "grace",
        kinds.SECONDS_OR_ZERO,
        30.0,
        "how long running jobs may go on after it was told to stop",
    ),
    ("poll", kinds.SECONDS, 2.0, "how long a job may wait when every wake-up is lost"),
    ("threads", kinds.COUNT_OR_NONE, None, "sync handlers at once; as many as `concurrency` by default"),
    ("isolated_processes", kinds.COUNT_OR_NONE, None, "isolated jobs at once; one per core by default"),
    ("look_every", kinds.SECONDS, 2.0, "how often it asks which chores are its own, and what there is to do"),
    ("reclaim_every", kinds.SECONDS, 10.0, "how often expired leases are looked for"),
    ("prune_every", kinds.SECONDS, 30.0, "how often retention is applied"),
)

_LOG = _settings(
    "log",
    ("format", kinds.FORMAT, "auto", "`json`, `console`, or `auto`: JSON unless stderr is a terminal"),
    (
        "level",
        kinds.LEVEL,
        "info",
        "write no lines below it: `debug`, `info`, `warning`, `error`",
    ),
)

_WEB = _settings(
    "web",
    ("host", kinds.HOST, "127.0.0.1", "the address the dashboard listens on; by default only this machine"),
    (
        "port",
        kinds.PORT,
        8750,
        "the port the dashboard listens on; when nobody set one and it is taken, the next that is free",
    ),
    (
        "public_url",
        kinds.WEB_ADDRESS,
        None,
        "the address people reach the dashboard at, for links in alerts; none by default",
    ),
    (
        "hosts",
        kinds.HOSTS,
        (),
        "names the dashboard may be asked by beside its own address, such as that of a reverse proxy",
    ),
    (
        "proxies",
        kinds.HOSTS,
        (),
        "reverse proxies that are believed when they say who asks and how (X-Forwarded-For, -Proto)",
    ),
    ("session", kinds.SECONDS, 43200.0, "how long a browser stays signed in; half a day by default"),
    ("rate", kinds.COUNT, 1200, "requests a minute of one token, beyond which it is answered 429"),
    ("keep_audit", kinds.SECONDS, 7776000.0, "how long entries of the audit log stay; 90 days by default"),
    (
        "redact",
        kinds.NAMES,
        (),
        "names of fields whose values are hidden in everything that is shown or sent, beside the usual names",
    ),
)

_WEBHOOKS = _settings(
    "webhooks",
    (
        "allow",
        kinds.HOSTS,
        (),
        "hosts by name, and networks, that webhooks may call though they are not public; none by default",
    ),
    ("timeout", kinds.SECONDS, 15.0, "how long a receiver has for its whole answer"),
)

_ALERTS = [
    *_settings(
        "alerts",
        ("rules", kinds.RULES, {}, "what is watched, see the page on alerts; the usual rules by default"),
        ("every", kinds.SECONDS, 15.0, "how often the rules are looked at"),
        ("digest", kinds.SECONDS_OR_ZERO, 30.0, "what happens within so many seconds goes into one message"),
        ("repeat", kinds.SECONDS, 3600.0, "how often at most people are told that something is still wrong"),
        ("email_to", kinds.MAILBOXES, (), "who gets an e-mail"),
        ("email_from", kinds.MAILBOX_OR_NONE, None, "whom it comes from; the first of `email_to` by default"),
    ),
    Setting(
        "alerts.smtp_url",
        kinds.MAIL_SERVER,
        None,
        "the mail server: `smtp://`, `smtp+starttls://` or `smtps://`, with user and password if need be",
        ("TIDEMILL_ALERTS_SMTP_URL",),
        secret=True,
    ),
    *(
        Setting(f"alerts.{name}", kind, None, meaning, (variable(f"alerts.{name}"),), True, True)
        for name, kind, meaning in (
            ("slack_url", kinds.HOOK, "the address of a Slack webhook"),
            ("dingtalk_url", kinds.HOOK, "the address of a DingTalk robot"),
            ("dingtalk_secret", kinds.HOOK_SECRET, "what its calls are signed with, if it wants that"),
        )
    ),
]

CATALOGUE: Mapping[str, Setting] = {
    setting.name: setting for setting in (_URL, _APP, *_WORKER, *_LOG, *_WEB, *_WEBHOOKS, *_ALERTS)
}

SECTIONS = ("worker", "log", "web", "webhooks", "alerts")

_OF_QUEUES: Mapping[str, tuple[Kind, str]] = {
    "weight": (kinds.COUNT, "its share of a worker that serves several queues"),
    "concurrency": (kinds.COUNT_OR_NONE, "running jobs at once, over all workers"),
    "key_concurrency": (kinds.COUNT_OR_NONE, "running jobs of one key at once, over all workers"),
    "max_length": (kinds.COUNT_OR_NONE, "pending jobs; beyond it enqueue raises `QueueFull`"),
    "crash_limit": (
        kinds.COUNT,
        "crashes until a job is poison; beyond the first only those it had alone count",
    ),
    "keep_done": (kinds.RETENTION, "how long done jobs stay"),
    "keep_failed": (kinds.RETENTION, "how long failed jobs stay"),
    "keep_cancelled": (kinds.RETENTION, "how long cancelled jobs stay"),
}

NOT_SETTINGS = {
    "TIDEMILL_CONFIG": "the TOML file to read instead of the one in the working directory",
    "TIDEMILL_SUPERVISOR": "set by a supervisor for the workers it starts",
    "TIDEMILL_WORKER_ID": "set by a supervisor for the workers it starts",
    "TIDEMILL_LOCKSTEP_EXAMPLES": "how many histories the conformance suite makes up",
    "TIDEMILL_LOCKSTEP_STEPS": "how long each of them is",
}
"""Variables that somebody reads, but that no file or argument can say."""


def of_queue(queue: str) -> dict[str, Setting]:
    """The settings of one queue. Only a plain name can be written as part of a variable."""
    plain = re.fullmatch(r"[A-Za-z0-9_.:-]+", queue) is not None
    defaults = QueueSettings()
    return {
        key: Setting(
            name := f"queues.{queue}.{key}",
            kind,
            getattr(defaults, key),
            meaning,
            (variable(name),) if plain else (),
        )
        for key, (kind, meaning) in _OF_QUEUES.items()
    }
