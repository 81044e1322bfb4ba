"""The experiment ``schedulers``: Corona's polling schedule compared with those of other feed readers."""
