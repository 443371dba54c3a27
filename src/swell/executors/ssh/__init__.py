"""Machines over SSH: their connections, and the transport by which `hosts` reaches them."""
