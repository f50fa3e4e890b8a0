"""Where jobs run. One engine today: this machine."""
