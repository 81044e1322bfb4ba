"""Tasks for operators that are available both on the command line and in the console."""
