"""How Django knows the package: its last name would be `django`."""

from __future__ import annotations

from django.apps import AppConfig


class TidemillConfig(AppConfig):
    name = "tidemill.frameworks.django"
    label = "tidemill"
    verbose_name = "Tidemill"
