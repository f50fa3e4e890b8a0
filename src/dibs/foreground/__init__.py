"""GPUs without a daemon: `pipe`, `lease` and what the old tools need.

May import `leases`, `devices`, `scheduling`, `client` and the packages below them. `dibs-compat` builds on it.
"""
