"""Tokens, sign-in links, sessions and the audit log, all kept in the store. `Auth` is `app.auth`."""

from __future__ import annotations

from tidemill.auth.audit_log import AuditLog
from tidemill.auth.record_store import OpenStore
from tidemill.auth.running_dashboards import DashboardAddresses
from tidemill.auth.sessions import SignInLinks, SignInSessions
from tidemill.auth.tokens import Tokens
from tidemill.clock import Clock, Entropy
from tidemill.settings import Settings


class Auth:
    """Gives access to the parts of authentication: `tokens`, sign-in `links`, `sessions`, `dashboards` (the
    addresses of running dashboards) and `audit` (the audit log). Example: `await
    app.auth.tokens.create("ann", Role.OPERATOR)`."""

    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy, settings: Settings) -> None:
        self.tokens = Tokens(store, clock, entropy)
        self.links = SignInLinks(store, clock, entropy)
        self.sessions = SignInSessions(store, clock, entropy, self.tokens, settings.value("web.session"))
        self.dashboards = DashboardAddresses(store, clock, entropy)
        self.audit = AuditLog(store, entropy, settings.value("web.keep_audit"))
