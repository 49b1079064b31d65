"""What is on disk: whole and unchanged, or refused."""
