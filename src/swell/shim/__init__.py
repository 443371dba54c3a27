"""Runs beside the training, on whichever machine: standard library only, and Python 3.8 or later (see `agent`)."""
