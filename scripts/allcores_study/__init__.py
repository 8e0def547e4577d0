"""Studies: the way from a config through runs to a report.

This package imports the engine, `allcores`, never the reverse. docs/adding.md lists what each
folder is for and which others it may import.
"""
