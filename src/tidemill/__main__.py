"""Runs the command line: `python -m tidemill` does the same as the command `tidemill`."""

from __future__ import annotations

from tidemill.cli import main

main()
