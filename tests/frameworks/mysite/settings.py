"""A minimal Django project. The environment says where its files are."""

from __future__ import annotations

import os

HOME = os.environ.get("MYSITE_HOME", "/nowhere")

SECRET_KEY = "only for tests"  # noqa: S105 - the project has no login
USE_TZ = True
INSTALLED_APPS = ["tests.frameworks.mysite.orders", "tidemill.frameworks.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{HOME}/site.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIDEMILL_APP = "tests.frameworks.mysite.orders.jobs.app"
TASKS = {
    "default": {
        "BACKEND": "tidemill.frameworks.django_tasks.TidemillBackend",
        "QUEUES": ["default", "mail"],
    },
    "retrying": {
        "BACKEND": "tidemill.frameworks.django_tasks.TidemillBackend",
        "OPTIONS": {"RETRY": {"attempts": 2, "first": 60, "jitter": 0, "give_up_on": (LookupError,)}},
    },
    "picky": {
        "BACKEND": "tests.frameworks.mysite.backends.OwnBackend",
        "OPTIONS": {"RETRY": {"attempts": 2, "first": 60, "jitter": 0, "on": (OSError,)}, "TIMEOUT": 5},
    },
}
