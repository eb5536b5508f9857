"""The command `tidemill demo`. It runs both applications on SQLite files, offline, in less than a minute.

The music application describes songs within the quota of a free tier. The articles application embeds and
searches a blog. A simulator answers instead of a real provider.

The exit code is 1 if a check fails. The demo's folder is kept, so that you can inspect it.
"""
