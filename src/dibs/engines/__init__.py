"""Where jobs run: this machine (`local`), and clusters that others operate (`protocol`)."""
