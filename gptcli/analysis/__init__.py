"""What finished runs say, read from their directories alone."""
