"""One module a command; each turns options into one value and hands it to the report room."""
