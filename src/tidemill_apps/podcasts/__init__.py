"""Podcasts: texts become spoken episodes, with a podcast feed."""
