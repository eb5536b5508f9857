"""The pure core: functions that take values and return values.

This package reads no clock, draws no random numbers, logs nothing and never waits. A store calls these
functions inside one transaction."""
