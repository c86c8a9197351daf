# A Python of its own with the packages that follow the first argument.
shift
python3 -m venv suite/python
suite/python/bin/python3 -m pip install --quiet "$@"
keep
