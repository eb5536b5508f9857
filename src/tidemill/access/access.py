"""`app.access`: everything about who may come in, and where."""

from __future__ import annotations

from tidemill.access.audit import Audit
from tidemill.access.links import Links
from tidemill.access.serving import Serving
from tidemill.access.sessions import Sessions
from tidemill.access.shelf import OpenStore
from tidemill.access.tokens import Tokens
from tidemill.clock import Clock, Entropy
from tidemill.settings import Settings


class Access:
    """`await app.access.tokens.create("ann", Role.OPERATOR)`, `await app.access.audit.page()`."""

    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy, settings: Settings) -> None:
        self.tokens = Tokens(store, clock, entropy)
        self.links = Links(store, clock, entropy)
        self.sessions = Sessions(store, clock, entropy, self.tokens, settings.value("web.session"))
        self.serving = Serving(store, clock, entropy)
        self.audit = Audit(store, entropy, settings.value("web.keep_audit"))
