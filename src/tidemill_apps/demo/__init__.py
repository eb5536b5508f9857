"""The command `tidemill demo`. It runs both applications on SQLite files, offline, in less than a minute.

The music application describes songs within the quota of a free tier, and waits while the day's quota is used
up. The articles application embeds a blog while articles are edited and hidden, and searches it. A simulator
answers instead of a real provider, and the screen says so.

Calls, refusals and double payments are counted from the simulator's request log. The exit code is 1 if a
check fails. The demo's folder is kept, so that you can inspect it."""
