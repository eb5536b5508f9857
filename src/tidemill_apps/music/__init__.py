"""Music enrichment: songs of a Subsonic server, described by a model and found by likeness."""
