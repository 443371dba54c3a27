"""Runs on the machine of the training: standard library only, and Python 3.8 or later (see `agent`)."""
