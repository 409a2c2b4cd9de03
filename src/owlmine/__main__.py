"""``python -m owlmine``, for running from source."""

from owlmine.cli import main

main()
