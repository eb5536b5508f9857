"""The private servers do what the tests rely on."""

from __future__ import annotations

import os
import socket

import psycopg
import pytest
import redis

from tests import servers
from tests.servers.postgres import PASSWORD, PASSWORD_USER, Postgres
from tests.servers.program import HOST, first_new_enough
from tests.servers.redis import Redis
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_keys import RedisKeys
from tests.servers.redis_sentinel import RedisSentinel

pytest_plugins = ["pytester"]

# The first message of a PostgreSQL client; a running server answers with one letter.
ASKS_FOR_TLS = b"\0\0\0\x08\x04\xd2\x16\x2f"


def test_redis_keeps_what_it_acknowledged_through_a_kill() -> None:
    with Redis(append_only=True) as server:
        first = server.pid
        with server.client() as client:
            client.set("kept", "yes")
        server.kill()
        with server.client() as client, pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        with server.client() as client:
            assert client.get("kept") == "yes"
        assert server.pid != first
    assert_nothing_is_left(server)


def test_redis_pauses_and_resumes() -> None:
    with Redis() as server:
        server.pause()
        with server.client(socket_timeout=0.05) as client, pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        with server.client() as client:
            assert client.ping()


def test_redis_with_a_password_and_with_a_user_of_few_rights() -> None:
    with Redis(requirepass="secret", user="few on >rights ~jobs:* +get") as server:
        assert "secret" in server.url
        with server.client() as client:
            client.set("jobs:1", "one")
        with server.client(username="few", password="rights") as few:  # noqa: S106 - its own
            assert few.get("jobs:1") == "one"
            with pytest.raises(redis.exceptions.NoPermissionError):
                few.get("other")
        with server.client(password=None) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_a_cluster_shares_the_keys_and_can_move_them(redis_cluster: RedisCluster) -> None:
    key = "{moves}:job"
    giver = redis_cluster.node_of(key)
    taker = next(node for node in redis_cluster.nodes if node is not giver)
    with giver.client() as gives, taker.client() as takes:
        gives.set(key, "one")
        with pytest.raises(redis.exceptions.MovedError):
            takes.get(key)
        redis_cluster.move(key, taker)
        with pytest.raises(redis.exceptions.MovedError):
            gives.get(key)
        assert takes.get(key) == "one"
    assert redis_cluster.node_of(key) is taker


def test_sentinels_make_the_replica_the_primary() -> None:
    with RedisSentinel() as watched:
        first = watched.primary
        with first.client() as client:
            client.set("job", "one")
            assert client.wait(num_replicas=1, timeout=5000) == 1
        watched.fail_over()
        assert watched.primary is not first
        with watched.primary.client() as client:
            assert client.get("job") == "one"
            client.set("job", "two")
        watched.come_back()
        with first.client() as client, pytest.raises(redis.exceptions.ReadOnlyError):
            client.set("job", "three")
    assert_nothing_is_left(first)


def test_a_machine_without_servers_has_those_of_the_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running the tests needs no installed server, and no test is skipped without one."""
    redis_program = first_new_enough(servers.redis._find_in_wheel(), servers.redis.MIN_VERSION)
    postgres_program = first_new_enough(servers.postgres._find_in_wheel(), servers.postgres.MIN_VERSION)
    monkeypatch.setattr(servers.redis, "redis_program", lambda: redis_program)
    monkeypatch.setattr(servers.postgres, "postgres_programs", lambda: postgres_program.parent)
    with Redis() as first, first.client() as client:
        assert client.ping()
    with Postgres() as second, second.client() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="Bad directive"), Redis(nonsense="yes"):
        pass


def test_postgres_keeps_what_it_acknowledged_through_a_kill() -> None:
    with Postgres(durable=True) as server:
        with server.client() as client:
            client.execute("CREATE TABLE kept AS SELECT 'yes' AS word")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
        server.start()
        with server.client() as client:
            assert client.execute("SELECT word FROM kept").fetchall() == [("yes",)]
        server.end()
        server.start()
        with server.client() as client:
            assert client.execute("SELECT word FROM kept").fetchall() == [("yes",)]
            server.pause()
            with socket.create_connection((HOST, server.port), timeout=0.1) as waiting:
                waiting.sendall(ASKS_FOR_TLS)
                with pytest.raises(TimeoutError):
                    waiting.recv(1)
            server.resume()
            assert client.execute("SELECT 1").fetchone() == (1,)
    assert_nothing_is_left(server)


def test_postgres_asks_the_guarded_user_for_a_password(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.guarded_url) as client:
        assert client.execute("SELECT current_user").fetchone() == (PASSWORD_USER,)
    wrong = postgres_server.guarded_url.replace(PASSWORD, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password"), psycopg.connect(wrong):
        pass


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_finds_the_database_empty(turn: str, postgres_url: str) -> None:
    """One test leaves a schema, a table and an open transaction; the other would fail because of them."""
    client = psycopg.connect(postgres_url)
    client.execute("CREATE SCHEMA mine; CREATE TABLE mine.jobs (id int); CREATE TABLE jobs (id int)")
    client.commit()
    client.execute("SELECT FROM jobs")
    test_every_test_finds_the_database_empty.__dict__.setdefault("open", []).append(client)


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_finds_redis_empty(
    turn: str, redis_url: str, redis_prefix: str, redis_keys: RedisKeys
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set(f"{redis_prefix}:job", "one")
    assert redis_keys.left_over() == [f"{redis_prefix}:job"]
    assert redis_keys.strays() == []


def test_a_key_outside_the_prefix_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.servers.plugin"]')
    pytester.makepyfile(
        """
        import redis

        def leave(url, key, db=0):
            with redis.Redis.from_url(url, db=db) as client:
                client.set(key, "x")

        def test_tidy(redis_url, redis_prefix):
            leave(redis_url, "{" + redis_prefix + ":0}:jobs")

        def test_stray(redis_url, redis_prefix):
            leave(redis_url, "tidemill:jobs")

        def test_another_database(redis_url):
            leave(redis_url, "other:jobs", db=3)

        def test_default(redis_url):
            leave(redis_url, "tidemill:jobs")
        """
    )
    ran = pytester.runpytest_inprocess("-o", "asyncio_default_fixture_loop_scope=function")
    ran.assert_outcomes(passed=4, errors=2)
    ran.stdout.fnmatch_lines(["*keys outside the prefix 't*': tidemill:jobs*", "*'tidemill': other:jobs*"])


def assert_nothing_is_left(server: Redis | Postgres) -> None:
    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_finds_the_tables_as_they_were_prepared(turn: str, prepared_postgres_url: str) -> None:
    with psycopg.connect(prepared_postgres_url, autocommit=True) as client:
        versions = client.execute("SELECT count(*) FROM tidemill.migrations").fetchone()
        assert versions is not None
        assert versions[0] > 0
        client.execute("DELETE FROM tidemill.migrations")
        row = client.execute(
            "INSERT INTO tidemill.arrivals (id, task, payload) VALUES ('a', 't', '{}') RETURNING seq"
        ).fetchone()
        assert row == (1,), "its numbers begin anew too"
