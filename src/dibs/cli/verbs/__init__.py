"""One file per verb, named as the user types it."""
