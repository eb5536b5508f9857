"""The pages of the dashboard. Each module has one page, or a few related pages and their actions, in its
`ROUTES`."""
