"""The checks of `dibs doctor`, one module per subject; used by `client.doctor` alone."""
