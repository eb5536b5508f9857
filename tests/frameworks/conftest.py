from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import django
import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Sets up the Django project with temporary files and creates its tables."""
    home = tmp_path_factory.mktemp("mysite")
    os.environ["MYSITE_HOME"] = str(home)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.frameworks.mysite.settings"
    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)
    yield home
    from django.db import connections

    connections.close_all()
