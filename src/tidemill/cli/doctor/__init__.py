"""`tidemill doctor`: is everything well, and if not, what to do (X7). One file per thing examined."""

from __future__ import annotations

from tidemill.cli.doctor.command import doctor

__all__ = ["doctor"]
