"""`python -m dibs.daemon`: the daemon as a process, as clients and installed units start it."""

from dibs.daemon import daemon

if __name__ == "__main__":
    daemon.main()
