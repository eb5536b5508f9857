"""Reads settings from arguments, the environment and a TOML file, and remembers the origin of each value.

If several sources have a value, the strongest wins. The order is: an argument in code or on the command line,
the environment, the TOML file, the default. A TOML file must not contain secrets: a URL with credentials is
refused in a file.

`catalogue` lists the settings, `toml` reads the file, `settings` reads the environment and merges all
sources."""

from tidemill.settings.settings import EffectiveSetting, Settings

__all__ = ["EffectiveSetting", "Settings"]
