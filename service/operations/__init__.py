"""Tasks of operators that the command line and the console both offer."""
