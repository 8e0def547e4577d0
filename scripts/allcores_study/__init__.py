"""Studies: from a config by way of runs to a report. It imports the engine, `allcores`, and not the
other way; docs/adding.md says what each folder is for, and which others it may import."""
