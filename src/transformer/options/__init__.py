"""Options with type, default, bounds and description, from which command line, server, checks and tables are made."""
