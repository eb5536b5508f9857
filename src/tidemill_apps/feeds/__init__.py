"""The feeds application: refreshes RSS, Atom and JSON feeds on time and limits the requests to each site."""
