"""Private servers for the tests: real ones, each on a free loopback port in a temporary folder.

`plugin.py` has the fixtures most tests need (`redis_url`, `postgres_url` …): one server per
test process, started by the first test that asks. A test that kills, pauses or configures
a server starts one of its own: `with Redis(append_only=True) as server: …`.
"""
