"""What goes to an engine that others operate and what is seen of it; `remote` decides when."""
