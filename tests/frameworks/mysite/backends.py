"""A backend of the project's own kind, as projects make them to change one thing."""

from __future__ import annotations

from tidemill.frameworks.django_tasks import TidemillBackend


class OwnBackend(TidemillBackend):
    pass
