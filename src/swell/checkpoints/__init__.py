"""Checkpoints that are not on a shared file system: copies in the daemon's store, and how they get there and away."""
