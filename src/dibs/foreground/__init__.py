"""GPUs without a daemon: `pipe`, `lease` and what the old tools need.

Imports `leases`, `devices`, `scheduling`, `client` and what lies above them. It is what `dibs-compat` builds on.
"""
