"""Commands: from text in any of the supported languages to values. Pure."""
