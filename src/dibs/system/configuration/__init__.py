"""What the settings are made of: kinds of values, tables with names, and the file that holds them.

`settings` lists all of them and reads them.
"""
