# Django's source distribution of the version $2, which has its tests, and a Python that runs them.
python3 -m venv suite/python
suite/python/bin/python3 -m pip install --quiet 'psycopg[binary,pool]~=3.2.0' asgiref sqlparse jinja2 \
    PyYAML tblib tzdata
suite/python/bin/python3 -m pip download --quiet --no-deps --no-binary django "django==$2"
tar -xf django-*.tar.gz -C suite --strip-components=1
# So that the programs that the tests start need not compile Django again each time.
suite/python/bin/python3 -m compileall -q --invalidation-mode unchecked-hash suite/django || true
keep
