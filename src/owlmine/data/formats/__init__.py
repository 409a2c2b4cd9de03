"""One file per family of formats: each turns files into blocks of points."""
