"""``python -m prov_host``."""

from prov_host.cli import main

main()
