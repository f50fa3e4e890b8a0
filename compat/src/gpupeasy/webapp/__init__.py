"""The page that talks to the server."""
