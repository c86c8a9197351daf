# The tests of MariaDB Connector/C, compiled with the library, and the plugins that they load.
upstream mariadb own trixie sid
mkdir source build suite/plugins
tar -xf mariadb_*.orig.tar.* -C source --strip-components=2 --wildcards '*/libmariadb/*'
# This one crashes, and with it all behind it, where the server has no TLS.
sed -i 's/\(test_conc748, TEST_CONNECTION_NONE, 0, NULL\), NULL/\1, "needs TLS"/' \
    source/unittest/libmariadb/connection.c
cmake -S source -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWITH_UNIT_TESTS=ON \
    -DWITH_CURL=OFF -DWITH_EXTERNAL_ZLIB=ON
cmake --build build --parallel "$(nproc)"
find build/unittest/libmariadb -maxdepth 1 -type f -executable -exec cp -t suite {} +
find build -name '*.so' ! -name 'libmariadb*' -exec cp -t suite/plugins {} +
keep
