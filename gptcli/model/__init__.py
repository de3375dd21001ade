"""The model, one component per file."""
