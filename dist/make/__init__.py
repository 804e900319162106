"""How each artefact is made. `dist/build` is the command line."""
