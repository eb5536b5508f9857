"""Articles of a blog, made searchable by meaning: written, embedded in the background, found."""
