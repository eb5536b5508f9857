"""Where the demo runs: in a folder of its own, and as if nothing were set for an application of yours."""

from __future__ import annotations

import os
import shutil
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = Path("tidemill-demo")
MARK = "made-by-make-demo"
FOREIGN = ("TIDEMILL_", "MUSIC_", "ARTICLES_", "REDIS_URL", "DATABASE_URL")


def enter(environ: MutableMapping[str, str] = os.environ) -> None:
    """Into a fresh folder. What an earlier demo left is forgotten; a folder of somebody else is not."""
    if FOLDER.exists() and not (FOLDER / MARK).exists():
        raise FileExistsError(f"{FOLDER} is there, and is not what an earlier demo left: move it away")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / MARK).touch()
    os.chdir(FOLDER)
    for name in [name for name in environ if name.startswith(FOREIGN)]:
        del environ[name]
