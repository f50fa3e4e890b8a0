"""Engines run jobs. Today there is one: this machine."""
