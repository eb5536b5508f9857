"""Songs of a Subsonic server, described by an LLM and searched by similarity."""
