# PyMySQL with its tests, which its packages for Python lack, and what runs them in a Python of its own.
upstream python-pymysql trixie own sid
tar -xf python-pymysql_*.orig.tar.* -C suite --strip-components=1
python3 -m venv suite/python
suite/python/bin/python3 -m pip install --quiet pytest cryptography
keep
