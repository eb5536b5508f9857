"""What is counted. Apart from pools and windows, which a program that only sends jobs does not load."""

from __future__ import annotations

Units = dict[str, float]
"""Amounts by unit."""

IMPLIED = {"requests": 1.0, "jobs": 1.0, "concurrent": 1.0}
"""What every call costs without being asked."""
