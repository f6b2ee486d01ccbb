"""How problems are solved: arrays in, a Solution out."""
