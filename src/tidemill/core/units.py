"""What is counted. Apart from pools and windows, which a program that only sends jobs does not load."""

from __future__ import annotations

Units = dict[str, float]
"""Amounts by unit."""

IMPLIED = {"requests": 1.0, "jobs": 1.0, "concurrent": 1.0}
"""What every call costs without being asked."""


def plus(one: Units, other: Units) -> Units:
    """What two calls cost together."""
    return {unit: _said(one, unit) + _said(other, unit) for unit in _named(one, other)}


def minus(all_: Units, one: Units) -> Units:
    """What is left for others when one of several calls is made."""
    return {unit: max(0.0, _said(all_, unit) - _said(one, unit)) for unit in _named(all_, one)}


def least(one: Units, other: Units) -> Units:
    return {unit: min(_said(one, unit), _said(other, unit)) for unit in _named(one, other)}


def _named(one: Units, other: Units) -> Units:
    return IMPLIED | one | other


def _said(units: Units, unit: str) -> float:
    return units.get(unit, IMPLIED.get(unit, 0.0))
