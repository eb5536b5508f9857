"""Private servers for the tests: real ones, each on a free loopback port in a temporary folder.

`plugin.py` has the fixtures that most tests need (`redis_url`, `postgres_url` …). Each test process has
one server of a kind; the first test that needs it starts it. A test that kills, pauses or configures a
server starts a separate one: `with Redis(append_only=True) as server: …`."""
