"""`python -m tidemill_apps.articles`."""

from __future__ import annotations

from tidemill_apps.articles.command import NAME, main

main(prog_name=NAME)
