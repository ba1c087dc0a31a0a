"""`python -m engrain` is the command line."""

from engrain.apps.cli.main import run

run()
