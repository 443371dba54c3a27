"""Swell: elastic scheduling of deep-learning training.

This file stays almost empty: the command line and the in-job library both import it, and must start fast.
"""

__version__ = "0.1.0"
