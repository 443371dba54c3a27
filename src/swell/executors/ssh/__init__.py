"""Machines over SSH: how they are connected to, and the transport that `hosts` speaks to them with."""
