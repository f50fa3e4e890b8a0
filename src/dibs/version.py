"""The version of dibs, in the one place that packaging, daemon and client read it from."""

__version__ = "0.1.0"
