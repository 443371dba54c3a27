"""The dashboard as it was built (`static/`, made from the top-level `web/` by `make web`) and how it is found.

Only `api` imports this package; it imports nothing of the rest."""
