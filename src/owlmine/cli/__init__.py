"""The command ``owlmine``: one file per verb, no logic of its own."""

from owlmine.cli.app import main

__all__ = ["main"]
