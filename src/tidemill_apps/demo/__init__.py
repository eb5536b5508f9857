"""`make demo`: the applications on SQLite files, offline, in less than a minute.

Music describes a library of songs inside a free tier's quota, and sits out a day's quota that is gone.
Articles embeds a blog while somebody edits and hides, and finds what is asked for. Nobody is paid: the
provider is the simulator of `tidemill.testing.providers`, and is called that on the screen. It is the
witness, too: what was made, refused and paid twice is read from its books, and a promise that was not kept
makes the exit code 1. The folder stays, to be looked at.
"""
