"""A blog whose articles are embedded in the background and searched by meaning."""
