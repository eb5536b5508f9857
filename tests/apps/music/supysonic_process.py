"""Runs supysonic: `python supysonic_process.py FOLDER PORT USER PASSWORD`. It serves FOLDER/music, and has
an additional POST /rescan."""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask
from supysonic.config import DefaultConfig
from supysonic.db import Folder, db
from supysonic.managers.folder import FolderManager
from supysonic.managers.user import UserManager
from supysonic.scanner import Scanner
from supysonic.web import create_application
from werkzeug.serving import make_server


def configured(folder: Path) -> DefaultConfig:
    config = DefaultConfig()
    config.BASE = {**config.BASE, "database_uri": f"sqlite:///{folder}/supysonic.db"}
    config.WEBAPP = {**config.WEBAPP, "cache_dir": f"{folder}/cache", "mount_webui": False}
    config.DAEMON = {**config.DAEMON, "socket": f"{folder}/none.sock"}
    return config


def made(folder: Path, user: str, password: str) -> Flask:
    app: Flask = create_application(configured(folder))
    with db.connection_context():
        FolderManager.add("music", str(folder / "music"))
        UserManager.add(user, password)

    @app.post("/rescan")
    def rescan() -> str:
        """Scans the folder. Its times are whole seconds, so a scan in the same second as the last is dated
        to the next."""
        before = Folder.get(root=True).last_scan
        scanner = Scanner()
        scanner.queue_folder("music")
        with db.atomic():  # a commit per song would take a minute for some hundreds
            scanner.run()
        folder = Folder.get(root=True)
        folder.last_scan = max(folder.last_scan, before + 1)
        folder.save()
        return str(scanner.stats().added.tracks)

    return app


if __name__ == "__main__":
    folder, port, user, password = sys.argv[1:]
    make_server("127.0.0.1", int(port), made(Path(folder), user, password), threaded=True).serve_forever()
