# The tests of the Debian source package $2, which the packages for Python lack, and a Python with the
# same version of the package $3.
source=$2
upstream "$source" trixie own sid
version=$(ls "$source"_*.orig.tar.* | sed 's/^[^_]*_\([0-9.]*[0-9]\).*/\1/')
tar -xf "$source"_*.orig.tar.* -C suite --strip-components=1
python3 -m venv suite/python
suite/python/bin/python3 -m pip install --quiet pytest "$3==$version"
keep
