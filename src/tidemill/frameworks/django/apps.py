"""The Django AppConfig, and the function that finds the Tidemill application of a Django project."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from tidemill.app import Tidemill


def get_application(path: str | None = None) -> Tidemill:
    """Returns the Tidemill application at `path`, such as `mysite.jobs.app` or `mysite.jobs:app`. Without
    `path` the setting TIDEMILL_APP is used.

    Raises ImproperlyConfigured if there is no such application."""
    app_path = path or getattr(settings, "TIDEMILL_APP", None)
    if not app_path:
        raise ImproperlyConfigured(
            'TIDEMILL_APP is not set; write TIDEMILL_APP = "mysite.jobs.app", the path of your Tidemill(…)'
        )
    try:
        found = import_string(str(app_path).replace(":", "."))
    except ImportError as error:
        raise ImproperlyConfigured(f"TIDEMILL_APP: {app_path!r} cannot be imported: {error}") from error
    if not isinstance(found, Tidemill):
        raise ImproperlyConfigured(
            f"TIDEMILL_APP: {app_path!r} is {type(found).__name__}, and must be the path of a Tidemill(…)"
        )
    return found


class TidemillConfig(AppConfig):
    name = "tidemill.frameworks.django"
    label = "tidemill"
    verbose_name = "Tidemill"
