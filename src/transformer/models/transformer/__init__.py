"""The paper's own model as a family."""
