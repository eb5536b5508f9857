"""Reads settings from arguments, the environment and a TOML file, and remembers the origin of each value.

An argument in code or on the command line wins over the environment, the environment over the TOML file, and
the file over the default. A URL with credentials is refused in a file, because files are committed.

`catalogue` lists the settings, `toml` reads the file, `settings` reads the environment and merges all
sources."""

from tidemill.settings.settings import EffectiveSetting, Settings

__all__ = ["EffectiveSetting", "Settings"]
