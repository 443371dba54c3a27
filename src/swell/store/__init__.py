"""Where facts are kept. `open_store` is the way in."""

from swell.store.open import open_store as open_store
