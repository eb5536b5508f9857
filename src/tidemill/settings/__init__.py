"""What can be set from outside the code, and where each value came from.

A value is taken from the strongest place that has one: an argument in code or on the command
line, the environment, a TOML file, the default. Arguments are strongest because code that says
something means it; the others fill in what code leaves open. Secrets come by the environment
only: files are committed and copied, so a URL with credentials is refused there.

`catalogue` lists the settings, `environment` and `toml` read one place each, `settings` puts
them together.
"""

from tidemill.settings.settings import Effective, Settings

__all__ = ["Effective", "Settings"]
