"""Which application a Django project means."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from tidemill.app import Tidemill


def application(path: str | None = None) -> Tidemill:
    """By its path (`mysite.jobs.app` or `mysite.jobs:app`), or by the setting TIDEMILL_APP."""
    wanted = path or getattr(settings, "TIDEMILL_APP", None)
    if not wanted:
        raise ImproperlyConfigured(
            'TIDEMILL_APP is not set; write TIDEMILL_APP = "mysite.jobs.app", the path of your Tidemill(…)'
        )
    try:
        found = import_string(str(wanted).replace(":", "."))
    except ImportError as error:
        raise ImproperlyConfigured(f"TIDEMILL_APP: {wanted!r} cannot be imported: {error}") from error
    if not isinstance(found, Tidemill):
        raise ImproperlyConfigured(
            f"TIDEMILL_APP: {wanted!r} is {type(found).__name__}, and must be the path of a Tidemill(…)"
        )
    return found
