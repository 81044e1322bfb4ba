"""Pages of the console and the operations of its JSON API, one module for each subject."""
