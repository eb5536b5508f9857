"""Integrations with web frameworks. Each module imports its framework, and no other module of Tidemill
imports these modules."""
