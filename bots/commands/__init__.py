"""Commands: typed values that are parsed from text in any of the supported languages."""
