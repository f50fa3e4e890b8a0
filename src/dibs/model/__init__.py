"""What a job, a device, a selector are: values and rules without I/O, clock or logging.

Imports only `errors`. Everybody may use it.
"""
