"""Who may come in, and what they did: tokens, links that sign in once, sessions, the audit log.

All of it is kept as records (`core.courses`), so every store has it. Of a secret only a digest is kept, and
of what a digest is made of there are 160 random bits: nobody guesses one, however fast the digest is made,
and nobody who reads the store can sign in with what is there.
"""
