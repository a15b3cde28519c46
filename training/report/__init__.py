"""Reports: what was found on a model or in a data set, as one HTML file, as JSON and as tables."""
