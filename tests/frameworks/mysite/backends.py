"""A backend subclass, as projects write one to change a single behaviour."""

from __future__ import annotations

from tidemill.frameworks.django_tasks import TidemillBackend


class OwnBackend(TidemillBackend):
    pass
