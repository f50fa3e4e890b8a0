"""Jobs, devices and selectors: values and rules without I/O, clock or logging.

Imports only `errors`. Every package may import it.
"""
