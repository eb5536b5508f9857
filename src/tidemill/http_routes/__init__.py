"""Route definitions, roles and problem documents, without a web framework.

An application adds its routes and pages through `app.web`. `tidemill.web` serves them together with
Tidemill's own, with the same sign-in, roles and checks."""
