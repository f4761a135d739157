"""Pictures of runs, for notebooks and for `dtrain report --html` and `--plots`.

`recording.read(FOLDER)` gives a Run. Each function of `curves`, `ranks`, `timeline` and `comparison` draws one figure of
it, or raises Nothing with a sentence on why there is nothing to draw; `gallery` lists them all.
"""
