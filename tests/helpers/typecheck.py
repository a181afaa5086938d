"""The run-time checker of annotations in tests: beartype, with an int where a float is asked for."""

from beartype import BeartypeConf, beartype

checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
