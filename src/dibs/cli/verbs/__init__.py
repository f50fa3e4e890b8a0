"""One file for each verb, named as it is typed."""
