"""`python -m tidemill` is the command line too."""

from __future__ import annotations

from tidemill.cli import main

main()
