"""Where facts are kept. `store.open.open_store` is the way in."""
