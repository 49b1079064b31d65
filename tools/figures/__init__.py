"""Scripts that make the drawings and plots of the documentation."""
