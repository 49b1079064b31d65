"""Documents: where the text of a file stands, how it is escaped, and how translations are spliced into its bytes."""
